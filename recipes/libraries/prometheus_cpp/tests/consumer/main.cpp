// Uses prometheus-cpp as Triton's metrics do: families of counters, gauges, histograms and summaries in a registry, counted
// in several threads, removed, and written as text.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/summary.h>
#include <prometheus/text_serializer.h>

namespace {

int failures = 0;

void Check(bool good, const char* what) {
  if (!good) {
    ++failures;
    std::fprintf(stderr, "wrong: %s\n", what);
  }
}

constexpr const char* kExpected =
    "# HELP inference_count Number of inferences\n"
    "# TYPE inference_count counter\n"
    "inference_count{model=\"a\\\"b\",version=\"1\"} 40000\n"
    "# HELP memory_bytes Memory in use\n"
    "# TYPE memory_bytes gauge\n"
    "memory_bytes{device=\"cpu\"} 1536.5\n"
    "# HELP latency_seconds Time of a request\n"
    "# TYPE latency_seconds histogram\n"
    "latency_seconds_count 4\n"
    "latency_seconds_sum 6.75\n"
    "latency_seconds_bucket{le=\"0.5\"} 1\n"
    "latency_seconds_bucket{le=\"1\"} 2\n"
    "latency_seconds_bucket{le=\"2.5\"} 3\n"
    "latency_seconds_bucket{le=\"+Inf\"} 4\n";

}  // namespace

int main() {
  prometheus::Registry registry;
  auto& counters =
      prometheus::BuildCounter().Name("inference_count").Help("Number of inferences").Register(registry);
  prometheus::Counter& counter = counters.Add({{"model", "a\"b"}, {"version", "1"}});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&counter] {
      for (int index = 0; index < 10000; ++index) {
        counter.Increment();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  counter.Increment(-1);
  Check(counter.Value() == 40000, "a counter counts in four threads, and only upwards");
  prometheus::Counter& gone = counters.Add({{"model", "gone"}, {"version", "1"}});
  Check(&counters.Add({{"model", "gone"}, {"version", "1"}}) == &gone, "the same labels are the same counter");
  counters.Remove(&gone);

  auto& gauges = prometheus::BuildGauge().Name("memory_bytes").Help("Memory in use").Register(registry);
  prometheus::Gauge& gauge = gauges.Add({{"device", "cpu"}});
  gauge.Set(2048);
  gauge.Decrement(511.5);

  auto& histograms = prometheus::BuildHistogram().Name("latency_seconds").Help("Time of a request").Register(registry);
  prometheus::Histogram& histogram = histograms.Add({}, prometheus::Histogram::BucketBoundaries{0.5, 1, 2.5});
  for (const double seconds : {0.25, 1.0, 2.0, 3.5}) {
    histogram.Observe(seconds);
  }

  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  Check(text == kExpected, "the text of all metrics");
  if (text != kExpected) {
    std::fputs(text.c_str(), stderr);
  }

  prometheus::Registry other;
  auto& summaries = prometheus::BuildSummary().Name("queue_us").Help("").Register(other);
  prometheus::Summary& summary = summaries.Add({}, prometheus::Summary::Quantiles{{0.5, 0.01}});
  for (int index = 1; index <= 99; ++index) {
    summary.Observe(index);
  }
  const auto families = other.Collect();
  Check(families.size() == 1 && families[0].metric.size() == 1, "one summary");
  const auto& collected = families.at(0).metric.at(0).summary;
  Check(collected.sample_count == 99 && collected.sample_sum == 4950, "count and sum of a summary");
  const double median = collected.quantile.at(0).value;
  Check(median > 45 && median < 55, "the median of a summary");

  bool refused = false;
  try {
    prometheus::BuildGauge().Name("not a name").Register(registry);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  Check(refused, "a bad name is refused with an exception");
  return failures != 0;
}
