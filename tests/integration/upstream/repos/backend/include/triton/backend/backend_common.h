#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triton/core/tritonbackend.h"
namespace triton { namespace backend {

#define RETURN_IF_ERROR(X)               \
  do {                                   \
    TRITONSERVER_Error* err__ = (X);     \
    if (err__ != nullptr) return err__;  \
  } while (false)

int64_t GetElementCount(const std::vector<int64_t>& shape);
uint64_t NowNanoseconds();
// Answers a request with an error, and gives it back.
void RespondWithError(TRITONBACKEND_Request* request, TRITONSERVER_Error* error);

}}  // namespace triton::backend
