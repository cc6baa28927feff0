#pragma once
#include <sys/types.h>

#include <memory>
#include <string>

#include "pb_utils.h"
#include "shm_manager.h"
namespace triton { namespace backend { namespace python {

struct StubSettings {
  std::string model_path;   // model.py
  std::string model_folder; // where the model's own stub may be
  std::string python_lib;   // where the backend's stub is
  std::string python_execution_env;
  std::string model_config;
  std::string instance_name;
  std::string shm_region_prefix = "triton_python_backend_shm_region_";
  size_t shm_default_byte_size = 1 << 20;
  size_t shm_growth_byte_size = 1 << 20;
  int stub_timeout_seconds = 30;
};

// A process that runs one instance of a model.
class StubLauncher {
 public:
  explicit StubLauncher(StubSettings settings) : settings_(std::move(settings)) {}
  ~StubLauncher();
  // Starts it, and waits until the model is initialized.
  void Launch();
  // Sends a message, and returns the answer.
  std::string Call(const std::string& message, int timeout_ms);

 private:
  void Start();
  bool StubIsAlive();
  void Terminate();

  StubSettings settings_;
  std::string shm_region_name_;
  std::unique_ptr<SharedMemoryManager> shm_pool_;
  Handle ipc_handle_ = 0;
  IPCControl* ipc_control_ = nullptr;
  pid_t stub_pid_ = -1;
};

}}}  // namespace triton::backend::python
