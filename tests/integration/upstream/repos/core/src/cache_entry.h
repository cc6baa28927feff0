#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "infer_request.h"
#include "status.h"
namespace triton { namespace core {

// The outputs of a response as one run of bytes, and back.
class CacheEntry {
 public:
  TRITONSERVER_Error* SetBufferSize(const Response& response);
  TRITONSERVER_Error* SerializeResponse(const Response& response);
  TRITONSERVER_Error* DeserializeInto(Response* response) const;
  const std::vector<char>& Buffer() const { return buffer_; }

 private:
  static void GetByteSize(const Output& output, uint64_t* packed_output_byte_size);
  static TRITONSERVER_Error* SerializeResponseOutput(const Output& output, char* buffer, size_t* packed_bytes);
  std::vector<char> buffer_;
};

}}  // namespace triton::core
