#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "triton/backend/backend_common.h"
namespace triton { namespace backend {

struct MemoryDesc {
  const char* buffer_ = nullptr;
  size_t byte_size_ = 0;
  TRITONSERVER_MemoryType memory_type_ = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id_ = 0;
};

struct ContiguousBuffer {
  MemoryDesc memory_desc_;
  uint32_t start_index_ = 0, end_index_ = 0;
};

// Puts the buffers of one input together.
class BackendInputCollector {
 public:
  BackendInputCollector(TRITONBACKEND_Input* input, const char* host_policy) : input_(input), host_policy_(host_policy) {}

  // The input as one run of bytes, where it lies if it is one there, else in a copy.
  TRITONSERVER_Error* Collect(std::string* copy, const char** base, size_t* byte_size);

 private:
  TRITONSERVER_Error* GetInputBufferIfContiguous(const char** base, size_t* byte_size, bool* contiguous);
  TRITONSERVER_Error* GetNextContiguousInput(uint32_t index, uint32_t count, ContiguousBuffer* input);
  TRITONBACKEND_Input* input_;
  const char* host_policy_;
};

}}  // namespace triton::backend
