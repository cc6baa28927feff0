#include "sequence_batch_scheduler/sequence_batch_scheduler.h"

#include "triton/common/logging.h"
#ifndef _WIN32
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
namespace triton { namespace core {

SequenceBatchScheduler::SequenceBatchScheduler(Model* model)
    : model_(model), thread_(&SequenceBatchScheduler::SequenceThread, this, 0)
{
}

SequenceBatchScheduler::~SequenceBatchScheduler()
{
  {
    std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
  }
  cv_.notify_all();
  thread_.join();
}

void
SequenceBatchScheduler::Enqueue(Request* request)
{
  {
    std::lock_guard<std::mutex> lock(mu_);
    queue_.push_back(request);
  }
  cv_.notify_one();
}

void
SequenceBatchScheduler::SetThreadPriority(int nice)
{
#ifndef _WIN32
  if (setpriority(PRIO_PROCESS, syscall(SYS_gettid), nice) != 0) {
    LOG_WARNING << "cannot set the nice value of a sequence thread to " << nice;
  }
#endif
}

void
SequenceBatchScheduler::SequenceThread(int nice)
{
  SetThreadPriority(nice);
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    cv_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    Request* request = queue_.front();
    queue_.pop_front();
    lock.unlock();
    model_->instances.front()->Execute({request});
    lock.lock();
  }
}

}}  // namespace triton::core
