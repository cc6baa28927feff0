#include "backend_model_instance.h"

#include <future>

#include "numa_utils.h"
#include "triton/common/logging.h"
#ifndef _WIN32
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
namespace triton { namespace core {

TritonBackendThread::TritonBackendThread(int nice) : thread_(&TritonBackendThread::BackendThread, this, nice) {}

TritonBackendThread::~TritonBackendThread()
{
  {
    std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
  }
  cv_.notify_all();
  thread_.join();
}

void
TritonBackendThread::Run(std::function<void()> task)
{
  {
    std::lock_guard<std::mutex> lock(mu_);
    tasks_.push_back(std::move(task));
  }
  cv_.notify_one();
}

size_t
TritonBackendThread::Waiting()
{
  std::lock_guard<std::mutex> lock(mu_);
  return tasks_.size() + busy_;
}

void
TritonBackendThread::BackendThread(int nice)
{
#ifndef _WIN32
  if (setpriority(PRIO_PROCESS, syscall(SYS_gettid), nice) != 0) {
    LOG_WARNING << "cannot set the nice value of a backend thread to " << nice;
  }
#endif
  if (TRITONSERVER_Error* error = ResetNumaMemoryPolicy()) {
    LOG_WARNING << TRITONSERVER_ErrorMessage(error);
    TRITONSERVER_ErrorDelete(error);
  }
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    cv_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = 1;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    busy_ = 0;
  }
}

Instance::Instance(Model* model_, std::string name_) : model(model_), name(std::move(name_)), thread_(0) {}

Instance::~Instance()
{
  std::promise<void> done;
  thread_.Run([&] {
    if (initialized_ && model->backend->instance_finalize) {
      TRITONSERVER_ErrorDelete(model->backend->instance_finalize(reinterpret_cast<TRITONBACKEND_ModelInstance*>(this)));
    }
    done.set_value();
  });
  done.get_future().wait();
}

TRITONSERVER_Error*
Instance::Initialize()
{
  std::promise<TRITONSERVER_Error*> done;
  thread_.Run([&] {
    TRITONSERVER_Error* error = nullptr;
    if (model->backend->instance_initialize) {
      error = model->backend->instance_initialize(reinterpret_cast<TRITONBACKEND_ModelInstance*>(this));
    }
    initialized_ = error == nullptr;
    done.set_value(error);
  });
  return done.get_future().get();
}

void
Instance::Execute(std::vector<Request*> requests)
{
  thread_.Run([this, requests = std::move(requests)] {
    std::vector<TRITONBACKEND_Request*> raw;
    for (Request* each : requests) {
      raw.push_back(reinterpret_cast<TRITONBACKEND_Request*>(each));
    }
    ++model->batches;
    TRITONSERVER_Error* error = model->backend->execute(
        reinterpret_cast<TRITONBACKEND_ModelInstance*>(this), raw.data(), uint32_t(raw.size()));
    if (error == nullptr) {
      return;
    }
    // The requests are still the server's.
    for (auto* each : raw) {
      TRITONBACKEND_Response* response = nullptr;
      if (TRITONBACKEND_ResponseNew(&response, each) == nullptr) {
        TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
      }
      TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(each, TRITONSERVER_REQUEST_RELEASE_ALL));
    }
    TRITONSERVER_ErrorDelete(error);
  });
}

}}  // namespace triton::core
