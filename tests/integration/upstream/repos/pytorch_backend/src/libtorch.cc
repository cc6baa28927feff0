// Takes a device by its name from LibTorch, and tells it how many threads it may use. It runs no model.
#include <ATen/Parallel.h>
#include <c10/core/Device.h>

#include <exception>

#include "triton/backend/backend_common.h"

using namespace triton::backend;

extern "C" {

TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance)
{
  try {
    if (c10::Device("cpu").is_cpu()) {
      at::set_num_threads(1);
    }
  }
  catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  }
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count)
{
  for (uint32_t i = 0; i < request_count; ++i) {
    RespondWithError(requests[i], TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "no model is run"));
  }
  return nullptr;
}

}  // extern "C"
