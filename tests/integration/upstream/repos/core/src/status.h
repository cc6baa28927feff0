#pragma once
#include <string>

#include "triton/core/tritonserver.h"
namespace triton { namespace core {

// The error is the caller's.
inline TRITONSERVER_Error*
NewError(TRITONSERVER_Error_Code code, const std::string& msg)
{
  return TRITONSERVER_ErrorNew(code, msg.c_str());
}

}}  // namespace triton::core
#define RETURN_IF_ERROR(X)               \
  do {                                   \
    TRITONSERVER_Error* err__ = (X);     \
    if (err__ != nullptr) return err__;  \
  } while (false)
