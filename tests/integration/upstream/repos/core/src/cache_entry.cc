#include "cache_entry.h"

#include <cstring>
namespace triton { namespace core {
namespace {

template <class T>
char*
Put(char* to, const T& value)
{
  memcpy(to, &value, sizeof(value));
  return to + sizeof(value);
}

template <class T>
const char*
Take(const char* from, T* value)
{
  memcpy(value, from, sizeof(*value));
  return from + sizeof(*value);
}

}  // namespace

void
CacheEntry::GetByteSize(const Output& output, uint64_t* packed_output_byte_size)
{
  *packed_output_byte_size = 4 * sizeof(uint64_t) + output.name.size() + output.shape.size() * sizeof(int64_t) + output.size;
}

TRITONSERVER_Error*
CacheEntry::SetBufferSize(const Response& response)
{
  uint64_t total = sizeof(uint64_t);
  for (const auto& output : response.outputs) {
    uint64_t packed_output_byte_size = 0;
    GetByteSize(output, &packed_output_byte_size);
    total += packed_output_byte_size;
  }
  buffer_.resize(total);
  return nullptr;
}

TRITONSERVER_Error*
CacheEntry::SerializeResponse(const Response& response)
{
  char* base = buffer_.data();
  uint64_t position = sizeof(uint64_t);
  Put(base, uint64_t(response.outputs.size()));
  for (const auto& output : response.outputs) {
    uint64_t packed_output_byte_size = 0;
    RETURN_IF_ERROR(SerializeResponseOutput(output, base + position, &packed_output_byte_size));
    position += packed_output_byte_size;
  }
  return nullptr;
}

TRITONSERVER_Error*
CacheEntry::SerializeResponseOutput(const Output& output, char* buffer, size_t* packed_bytes)
{
  if (output.base == nullptr && output.size != 0) {
    return NewError(TRITONSERVER_ERROR_INTERNAL, "an output without a buffer cannot be kept");
  }
  char* to = buffer;
  to = Put(to, uint64_t(output.name.size()));
  to = Put(to, uint64_t(output.type));
  to = Put(to, uint64_t(output.shape.size()));
  to = Put(to, uint64_t(output.size));
  memcpy(to, output.name.data(), output.name.size());
  to += output.name.size();
  for (const int64_t each : output.shape) {
    to = Put(to, each);
  }
  if (output.size != 0) {
    memcpy(to, output.base, output.size);
  }
  *packed_bytes = size_t(to - buffer) + output.size;
  return nullptr;
}

TRITONSERVER_Error*
CacheEntry::DeserializeInto(Response* response) const
{
  uint64_t count = 0;
  const char* from = Take(buffer_.data(), &count);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t name, type, dims, size;
    from = Take(Take(Take(Take(from, &name), &type), &dims), &size);
    Output& output = response->outputs.emplace_back();
    output.response = response;
    output.name.assign(from, name);
    output.type = TRITONSERVER_DataType(type);
    from += name;
    output.shape.resize(dims);
    for (int64_t& each : output.shape) {
      from = Take(from, &each);
    }
    TRITONSERVER_Error* error = nullptr;
    void* to = response->Allocate(&output, size, &error);
    RETURN_IF_ERROR(error);
    if (size != 0) {
      memcpy(to, from, size);
    }
    from += size;
  }
  return nullptr;
}

}}  // namespace triton::core
