// A ring of handles in shared memory, with a time limit for both ends.
#pragma once
#include <boost/date_time/posix_time/posix_time_types.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/sync/interprocess_mutex.hpp>
#include <boost/interprocess/sync/interprocess_semaphore.hpp>
#include <boost/interprocess/sync/scoped_lock.hpp>
#include <boost/thread/thread_time.hpp>
#include <cstddef>
namespace triton { namespace backend { namespace python {

namespace bi = boost::interprocess;
using Handle = bi::managed_external_buffer::handle_t;

class MessageQueue {
 public:
  bool Push(Handle message, int duration_ms)
  {
    return Move(&free_, &filled_, &head_, duration_ms, [this, message](size_t place) { slots_[place] = message; });
  }
  bool Pop(Handle* message, int duration_ms)
  {
    return Move(&filled_, &free_, &tail_, duration_ms, [this, message](size_t place) { *message = slots_[place]; });
  }

 private:
  template <typename Access>
  bool Move(bi::interprocess_semaphore* from, bi::interprocess_semaphore* to, size_t* place, int duration_ms, Access access)
  {
    if (!from->timed_wait(boost::get_system_time() + boost::posix_time::milliseconds(duration_ms))) {
      return false;
    }
    {
      bi::scoped_lock<bi::interprocess_mutex> lock(mutex_);
      access(*place);
      *place = (*place + 1) % kSlots;
    }
    to->post();
    return true;
  }

  static constexpr size_t kSlots = 1000;
  bi::interprocess_mutex mutex_;
  bi::interprocess_semaphore free_{kSlots}, filled_{0};
  size_t head_ = 0, tail_ = 0;
  Handle slots_[kSlots];
};

}}}  // namespace triton::backend::python
