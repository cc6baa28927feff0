#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common.h"
namespace triton { namespace server {

struct SharedMemoryRegion {
  std::string name, key;
  size_t offset = 0, byte_size = 0;
  void* base = nullptr;
  ~SharedMemoryRegion();
};

class SharedMemoryManager {
 public:
  explicit SharedMemoryManager(bool allowed) : allowed_(allowed) {}
  TRITONSERVER_Error* RegisterSystemSharedMemory(
      const std::string& name, const std::string& shm_key, size_t offset, size_t byte_size);
  // The region stays mapped as long as somebody holds it.
  TRITONSERVER_Error* GetMemoryInfo(
      const std::string& name, size_t offset, size_t byte_size, void** base, std::shared_ptr<SharedMemoryRegion>* hold);
  TRITONSERVER_Error* GetStatus(const std::string& name, std::string* json);
  TRITONSERVER_Error* Unregister(const std::string& name);
  void UnregisterAll();

 private:
  const bool allowed_;
  std::mutex mu_;
  std::map<std::string, std::shared_ptr<SharedMemoryRegion>> regions_;
};

}}  // namespace triton::server
