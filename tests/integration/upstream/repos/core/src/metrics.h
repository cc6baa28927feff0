#pragma once
#include <cstdint>
#include <string>
namespace triton { namespace core {

struct CpuInfo {
  uint64_t busy = 0, all = 0;
};
struct MemInfo {
  uint64_t total = 0, available = 0;  // bytes
};

class Metrics {
 public:
  static bool ParseCpuInfo(CpuInfo* info);
  static bool ParseMemInfo(MemInfo* info);
  static void CountRequest(const std::string& model, bool success);
  static std::string SerializedMetrics();
};

}}  // namespace triton::core
