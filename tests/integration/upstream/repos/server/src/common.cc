#include "common.h"
namespace triton { namespace server {

const char* const kTritonSharedMemoryRegionPrefix = "triton_python_backend_shm_region_";

std::string
ErrorText(TRITONSERVER_Error* error, int* http_code)
{
  const std::string text = TRITONSERVER_ErrorMessage(error);
  if (http_code != nullptr) {
    switch (TRITONSERVER_ErrorCode(error)) {
      case TRITONSERVER_ERROR_INTERNAL: *http_code = 500; break;
      case TRITONSERVER_ERROR_NOT_FOUND: *http_code = 404; break;
      case TRITONSERVER_ERROR_UNAVAILABLE: *http_code = 503; break;
      case TRITONSERVER_ERROR_UNSUPPORTED: *http_code = 501; break;
      case TRITONSERVER_ERROR_ALREADY_EXISTS: *http_code = 409; break;
      default: *http_code = 400; break;
    }
  }
  TRITONSERVER_ErrorDelete(error);
  return text;
}

}}  // namespace triton::server
