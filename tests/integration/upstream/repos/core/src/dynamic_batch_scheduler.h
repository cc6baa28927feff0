#pragma once
#include "backend_model_instance.h"
namespace triton { namespace core {

// Joins requests to batches, as far as they have waited no longer than they may.
class DynamicBatchScheduler : public Scheduler {
 public:
  explicit DynamicBatchScheduler(Model* model);
  ~DynamicBatchScheduler() override;
  void Enqueue(Request* request) override;

 private:
  void BatcherThread(int nice);
  Model* model_;
  std::mutex mu_;
  std::condition_variable cv_;
  std::deque<Request*> queue_;
  bool stop_ = false;
  bool preserve_ordering_ = false;
  std::thread thread_;
};

Instance* LeastBusy(Model* model);

}}  // namespace triton::core
