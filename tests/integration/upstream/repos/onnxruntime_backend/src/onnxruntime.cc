// Asks ONNX Runtime for its API, and reads inputs that are strings. It runs no model.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "triton/backend/backend_common.h"

// Of ONNX Runtime's C API what is used here: there are no headers in its wheels.
struct OrtApi;
struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};
extern "C" const OrtApiBase* OrtGetApiBase();

using namespace triton::backend;
namespace {

constexpr uint32_t kOldestApi = 11;
const OrtApi* ort_api = nullptr;

class ModelInstanceState {
 public:
  // The strings of an input: each is its length in four bytes, then its bytes.
  TRITONSERVER_Error* SetStringInputTensor(TRITONBACKEND_Input* input, std::vector<std::string>* strings);
};

TRITONSERVER_Error*
ModelInstanceState::SetStringInputTensor(TRITONBACKEND_Input* input, std::vector<std::string>* strings)
{
  std::string bytes;
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr, nullptr, nullptr, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const void* buffer = nullptr;
    size_t src_byte_size = 0;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t type_id = 0;
    RETURN_IF_ERROR(TRITONBACKEND_InputBufferForHostPolicy(
        input, "cpu", index, &buffer, &src_byte_size, &type, &type_id));
    bytes.append(static_cast<const char*>(buffer), src_byte_size);
  }
  for (size_t at = 0; at < bytes.size();) {
    uint32_t length = 0;
    if (bytes.size() - at < sizeof(length)) {
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "a string has no length");
    }
    memcpy(&length, bytes.data() + at, sizeof(length));
    at += sizeof(length);
    if (bytes.size() - at < length) {
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "a string is shorter than it says");
    }
    strings->emplace_back(bytes, at, length);
    at += length;
  }
  return nullptr;
}

TRITONSERVER_Error*
Answer(TRITONBACKEND_Request* request)
{
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_RequestInputCount(request, &count));
  std::vector<std::string> strings;
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input* input = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_RequestInputByIndex(request, i, &input));
    RETURN_IF_ERROR(ModelInstanceState().SetStringInputTensor(input, &strings));
  }
  const std::string text = "no model is run on " + std::to_string(strings.size()) + " strings";
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, text.c_str());
}

}  // namespace

extern "C" {

TRITONSERVER_Error*
TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)
{
  ort_api = OrtGetApiBase()->GetApi(kOldestApi);
  return ort_api != nullptr ? nullptr : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "ONNX Runtime is too old");
}

TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count)
{
  for (uint32_t i = 0; i < request_count; ++i) {
    RespondWithError(requests[i], Answer(requests[i]));
  }
  return nullptr;
}

}  // extern "C"
