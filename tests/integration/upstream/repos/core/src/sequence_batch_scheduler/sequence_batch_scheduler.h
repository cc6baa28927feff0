#pragma once
#include "dynamic_batch_scheduler.h"
namespace triton { namespace core {

// Requests of a model with sequences run one after the other, on its first instance.
class SequenceBatchScheduler : public Scheduler {
 public:
  explicit SequenceBatchScheduler(Model* model);
  ~SequenceBatchScheduler() override;
  void Enqueue(Request* request) override;

 private:
  void SetThreadPriority(int nice);
  void SequenceThread(int nice);
  Model* model_;
  std::mutex mu_;
  std::condition_variable cv_;
  std::deque<Request*> queue_;
  bool stop_ = false;
  std::thread thread_;
};

}}  // namespace triton::core
