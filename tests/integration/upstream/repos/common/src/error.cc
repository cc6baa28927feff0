#include "triton/common/error.h"
namespace triton { namespace common {

const char*
Error::CodeString(Code code)
{
  switch (code) {
    case Code::SUCCESS: return "OK";
    case Code::INTERNAL: return "Internal";
    case Code::NOT_FOUND: return "Not found";
    case Code::INVALID_ARG: return "Invalid argument";
    case Code::UNAVAILABLE: return "Unavailable";
    case Code::UNSUPPORTED: return "Unsupported";
    case Code::ALREADY_EXISTS: return "Already exists";
    case Code::UNKNOWN: break;
  }
  return "Unknown";
}

}}  // namespace triton::common
