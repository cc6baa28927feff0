#include "metrics.h"

#include <fstream>
#include <sstream>
#include <string>

#ifdef TRITON_ENABLE_METRICS
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#endif
namespace triton { namespace core {

bool
Metrics::ParseCpuInfo(CpuInfo* info)
{
  std::ifstream ifs("/proc/stat");
  std::string name;
  if (!ifs.good() || !(ifs >> name) || name != "cpu") {
    return false;
  }
  uint64_t value = 0;
  for (int i = 0; i < 8 && ifs >> value; ++i) {
    info->all += value;
    if (i != 3 && i != 4) {
      info->busy += value;
    }
  }
  return info->all != 0;
}

bool
Metrics::ParseMemInfo(MemInfo* info)
{
  std::ifstream ifs("/proc/meminfo");
  std::string line;
  while (std::getline(ifs, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    words >> name >> value;
    if (name == "MemTotal:") {
      info->total = value * 1024;
    } else if (name == "MemAvailable:") {
      info->available = value * 1024;
    }
  }
  return info->total != 0;
}

#ifdef TRITON_ENABLE_METRICS
namespace {

struct All {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& success = prometheus::BuildCounter()
                                                         .Name("nv_inference_request_success")
                                                         .Help("Requests that were answered")
                                                         .Register(registry);
  prometheus::Family<prometheus::Counter>& failure = prometheus::BuildCounter()
                                                         .Name("nv_inference_request_failure")
                                                         .Help("Requests that failed")
                                                         .Register(registry);
  prometheus::Gauge& cpu =
      prometheus::BuildGauge().Name("nv_cpu_utilization").Help("Busy share of the processors").Register(registry).Add({});
  prometheus::Gauge& total = prometheus::BuildGauge()
                                 .Name("nv_cpu_memory_total_bytes")
                                 .Help("Memory of the machine")
                                 .Register(registry)
                                 .Add({});
  prometheus::Gauge& used = prometheus::BuildGauge()
                                .Name("nv_cpu_memory_used_bytes")
                                .Help("Memory in use")
                                .Register(registry)
                                .Add({});
};

All&
TheMetrics()
{
  static All all;
  return all;
}

}  // namespace

void
Metrics::CountRequest(const std::string& model, bool success)
{
  auto& family = success ? TheMetrics().success : TheMetrics().failure;
  family.Add({{"model", model}, {"version", "1"}}).Increment();
}

std::string
Metrics::SerializedMetrics()
{
#ifdef TRITON_ENABLE_METRICS_CPU
  CpuInfo cpu;
  if (ParseCpuInfo(&cpu)) {
    TheMetrics().cpu.Set(double(cpu.busy) / double(cpu.all));
  }
  MemInfo memory;
  if (ParseMemInfo(&memory)) {
    TheMetrics().total.Set(double(memory.total));
    TheMetrics().used.Set(double(memory.total - memory.available));
  }
#endif
  return prometheus::TextSerializer().Serialize(TheMetrics().registry.Collect());
}
#else
void
Metrics::CountRequest(const std::string&, bool)
{
}

std::string
Metrics::SerializedMetrics()
{
  return "";
}
#endif

}}  // namespace triton::core
