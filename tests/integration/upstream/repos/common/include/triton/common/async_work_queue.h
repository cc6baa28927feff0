#pragma once
#include <cstddef>
#include <functional>

#include "triton/common/error.h"
namespace triton { namespace common {

// One pool of threads for the process.
class AsyncWorkQueue {
 public:
  static Error Initialize(size_t worker_count);
  static Error AddTask(std::function<void()> task);
};

}}  // namespace triton::common
