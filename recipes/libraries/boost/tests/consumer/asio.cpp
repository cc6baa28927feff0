// Work posted to a thread pool, as in Triton's Python backend, and a timer, which needs the system's event queue.
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

int main() {
  std::atomic<int> sum = 0;
  std::set<std::thread::id> threads;
  std::mutex mutex;
  std::promise<int> promise;
  auto future = promise.get_future();
  {
    boost::asio::thread_pool pool(4);
    for (int i = 1; i <= 1000; ++i) {
      boost::asio::post(pool, [&, i] {
        sum += i;
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      });
    }
    auto last = [promise = std::make_unique<std::promise<int>>(std::move(promise))] { promise->set_value(7); };
    boost::asio::post(pool, std::move(last));
    if (future.get() != 7) {
      std::fputs("a move-only task did not answer\n", stderr);
      return 1;
    }
    pool.join();
  }
  if (sum != 500500 || threads.empty() || threads.contains(std::this_thread::get_id())) {
    std::fprintf(stderr, "the pool's sum is %d, not 500500\n", sum.load());
    return 1;
  }

  boost::asio::io_context context;
  boost::asio::steady_timer timer(context, std::chrono::milliseconds(20));
  bool fired = false;
  timer.async_wait([&](const boost::system::error_code& error) { fired = !error; });
  const auto start = std::chrono::steady_clock::now();
  context.run();
  if (!fired || std::chrono::steady_clock::now() - start < std::chrono::milliseconds(20)) {
    std::fputs("the timer fired too early or not at all\n", stderr);
    return 1;
  }
  return 0;
}
