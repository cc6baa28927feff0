#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend_model.h"
namespace triton { namespace core {

// Loads a backend's instance and runs it, both on a thread of its own.
class TritonBackendThread {
 public:
  explicit TritonBackendThread(int nice);
  ~TritonBackendThread();
  void Run(std::function<void()> task);
  size_t Waiting();

 private:
  void BackendThread(int nice);
  std::mutex mu_;
  std::condition_variable cv_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  size_t busy_ = 0;
  std::thread thread_;
};

class Instance {
 public:
  Instance(Model* model, std::string name);
  ~Instance();
  TRITONSERVER_Error* Initialize();
  void Execute(std::vector<Request*> requests);
  size_t Waiting() { return thread_.Waiting(); }

  Model* model;
  std::string name;
  void* state = nullptr;

 private:
  bool initialized_ = false;
  TritonBackendThread thread_;
};

}}  // namespace triton::core
