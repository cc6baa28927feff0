#include "dynamic_batch_scheduler.h"

#include <chrono>

#include "triton/common/logging.h"
#ifndef _WIN32
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
namespace triton { namespace core {

Instance*
LeastBusy(Model* model)
{
  Instance* best = nullptr;
  size_t least = 0;
  for (const auto& each : model->instances) {
    const size_t waiting = each->Waiting();
    if (best == nullptr || waiting < least) {
      best = each.get();
      least = waiting;
    }
  }
  return best;
}

DynamicBatchScheduler::DynamicBatchScheduler(Model* model)
    : model_(model), thread_(&DynamicBatchScheduler::BatcherThread, this, 0)
{
}

DynamicBatchScheduler::~DynamicBatchScheduler()
{
  {
    std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
  }
  cv_.notify_all();
  thread_.join();
}

void
DynamicBatchScheduler::Enqueue(Request* request)
{
  {
    std::lock_guard<std::mutex> lock(mu_);
    queue_.push_back(request);
  }
  cv_.notify_one();
}

void
DynamicBatchScheduler::BatcherThread(int nice)
{
#ifndef _WIN32
  if (setpriority(PRIO_PROCESS, syscall(SYS_gettid), nice) != 0) {
    LOG_WARNING << "cannot set the nice value of a batcher thread to " << nice;
  }
#endif
  const bool batching = model_->config.has_dynamic_batching();
  const size_t most = batching ? size_t(std::max(1, model_->config.max_batch_size())) : 1;
  const std::chrono::microseconds delay(model_->config.dynamic_batching().max_queue_delay_microseconds());
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    cv_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    if (most > 1 && delay.count() != 0) {
      cv_.wait_for(lock, delay, [&] { return stop_ || queue_.size() >= most; });
    }
    const auto end = queue_.begin() + std::ptrdiff_t(std::min(most, queue_.size()));
    std::vector<Request*> batch(queue_.begin(), end);
    queue_.erase(queue_.begin(), end);
    lock.unlock();
    LeastBusy(model_)->Execute(std::move(batch));
    lock.lock();
  }
}

}}  // namespace triton::core
