#include "triton/common/async_work_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>
namespace triton { namespace common {
namespace {

struct Pool {
  std::mutex mu;
  std::condition_variable cv;
  std::deque<std::function<void()>> tasks;
  std::vector<std::thread> threads;
  bool stop = false;

  void Work()
  {
    for (;;) {
      std::unique_lock<std::mutex> lock(mu);
      cv.wait(lock, [this] { return stop || !tasks.empty(); });
      if (tasks.empty()) {
        return;
      }
      auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
    }
  }
  ~Pool()
  {
    {
      std::lock_guard<std::mutex> lock(mu);
      stop = true;
    }
    cv.notify_all();
    for (auto& each : threads) {
      each.join();
    }
  }
};

Pool&
ThePool()
{
  static Pool pool;
  return pool;
}

}  // namespace

Error
AsyncWorkQueue::Initialize(size_t worker_count)
{
  auto& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mu);
  if (!pool.threads.empty()) {
    return Error(Error::Code::ALREADY_EXISTS, "the work queue has its threads");
  }
  for (size_t i = 0; i < worker_count; ++i) {
    pool.threads.emplace_back(&Pool::Work, &pool);
  }
  return Error();
}

Error
AsyncWorkQueue::AddTask(std::function<void()> task)
{
  auto& pool = ThePool();
  {
    std::lock_guard<std::mutex> lock(pool.mu);
    if (pool.threads.empty()) {
      return Error(Error::Code::UNAVAILABLE, "the work queue has no threads");
    }
    pool.tasks.push_back(std::move(task));
  }
  pool.cv.notify_one();
  return Error();
}

}}  // namespace triton::common
