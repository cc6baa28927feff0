#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triton/core/tritonserver.h"
namespace triton { namespace server {

constexpr char kInferHeaderContentLengthHTTPHeader[] = "Inference-Header-Content-Length";
extern const char* const kTritonSharedMemoryRegionPrefix;

// Its code and text; it is deleted.
std::string ErrorText(TRITONSERVER_Error* error, int* http_code = nullptr);

}}  // namespace triton::server
#define RETURN_IF_ERR(X)                 \
  do {                                   \
    TRITONSERVER_Error* err__ = (X);     \
    if (err__ != nullptr) return err__;  \
  } while (false)
