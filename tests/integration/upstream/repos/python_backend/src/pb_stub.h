#pragma once
#include <pybind11/embed.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "pb_utils.h"
#include "shm_manager.h"
namespace triton { namespace backend { namespace python {

// The process of one instance.
class Stub {
 public:
  void Instantiate(
      size_t shm_growth_size, size_t shm_default_size, const std::string& shm_region_name, const std::string& model_path,
      pid_t parent_id, const std::string& triton_install_path, Handle ipc_control_handle, const std::string& name);
  // Until the parent says that it is over, or is gone.
  void Run();
  ~Stub();

 private:
  std::string Answer(const std::string& message);
  void Initialize(const std::string& message);
  std::string Execute(const std::string& message);
  void WatchParent();

  std::string model_path_, triton_install_path_;
  pid_t parent_id_ = 0;
  std::unique_ptr<SharedMemoryManager> shm_pool_;
  IPCControl* ipc_control_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::thread watcher_;
  pybind11::object model_;
};

}}}  // namespace triton::backend::python
