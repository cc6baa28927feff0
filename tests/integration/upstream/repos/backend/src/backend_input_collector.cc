#include "triton/backend/backend_input_collector.h"
namespace triton { namespace backend {

TRITONSERVER_Error*
BackendInputCollector::GetNextContiguousInput(uint32_t index, uint32_t count, ContiguousBuffer* input)
{
  const void* base = nullptr;
  input->start_index_ = input->end_index_ = index;
  RETURN_IF_ERROR(TRITONBACKEND_InputBufferForHostPolicy(
      input_, host_policy_, index, &base, &input->memory_desc_.byte_size_, &input->memory_desc_.memory_type_,
      &input->memory_desc_.memory_type_id_));
  input->memory_desc_.buffer_ = static_cast<const char*>(base);
  while (input->end_index_ + 1 < count) {
    const void* next_buffer = nullptr;
    size_t next_buffer_byte_size = 0;
    TRITONSERVER_MemoryType type;
    int64_t type_id;
    RETURN_IF_ERROR(TRITONBACKEND_InputBufferForHostPolicy(
        input_, host_policy_, input->end_index_ + 1, &next_buffer, &next_buffer_byte_size, &type, &type_id));
    if (input->memory_desc_.buffer_ + input->memory_desc_.byte_size_ != next_buffer) {
      break;
    }
    input->memory_desc_.byte_size_ += next_buffer_byte_size;
    ++input->end_index_;
  }
  return nullptr;
}

TRITONSERVER_Error*
BackendInputCollector::Collect(std::string* copy, const char** base, size_t* byte_size)
{
  bool contiguous = false;
  RETURN_IF_ERROR(GetInputBufferIfContiguous(base, byte_size, &contiguous));
  if (contiguous) {
    return nullptr;
  }
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_InputProperties(input_, nullptr, nullptr, nullptr, nullptr, nullptr, &count));
  copy->clear();
  for (uint32_t index = 0; index < count;) {
    ContiguousBuffer next;
    RETURN_IF_ERROR(GetNextContiguousInput(index, count, &next));
    copy->append(next.memory_desc_.buffer_, next.memory_desc_.byte_size_);
    index = next.end_index_ + 1;
  }
  *base = copy->data();
  *byte_size = copy->size();
  return nullptr;
}

TRITONSERVER_Error*
BackendInputCollector::GetInputBufferIfContiguous(const char** base, size_t* byte_size, bool* contiguous)
{
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_InputProperties(input_, nullptr, nullptr, nullptr, nullptr, nullptr, &count));
  *base = nullptr;
  *byte_size = 0;
  for (uint32_t index = 0; index < count; ++index) {
    const void* buffer = nullptr;
    size_t src_byte_size = 0;
    TRITONSERVER_MemoryType type;
    int64_t type_id;
    RETURN_IF_ERROR(TRITONBACKEND_InputBufferForHostPolicy(
        input_, host_policy_, index, &buffer, &src_byte_size, &type, &type_id));
    if (*base != nullptr && *base + *byte_size != buffer) {
      *contiguous = false;
      return nullptr;
    }
    if (*base == nullptr) {
      *base = static_cast<const char*>(buffer);
    }
    *byte_size += src_byte_size;
  }
  *contiguous = true;
  return nullptr;
}

}}  // namespace triton::backend
