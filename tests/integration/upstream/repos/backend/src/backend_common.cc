#include "triton/backend/backend_common.h"

#include <chrono>
namespace triton { namespace backend {

int64_t
GetElementCount(const std::vector<int64_t>& shape)
{
  int64_t count = 1;
  for (const int64_t each : shape) {
    if (each < 0) {
      return -1;
    }
    count *= each;
  }
  return count;
}

uint64_t
NowNanoseconds()
{
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
}

void
RespondWithError(TRITONBACKEND_Request* request, TRITONSERVER_Error* error)
{
  TRITONBACKEND_Response* response = nullptr;
  if (TRITONSERVER_Error* failure = TRITONBACKEND_ResponseNew(&response, request)) {
    TRITONSERVER_ErrorDelete(failure);
  } else if (TRITONSERVER_Error* late =
                 TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error)) {
    TRITONSERVER_ErrorDelete(late);
  }
  TRITONSERVER_ErrorDelete(error);
  if (TRITONSERVER_Error* failure = TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL)) {
    TRITONSERVER_ErrorDelete(failure);
  }
}

}}  // namespace triton::backend
