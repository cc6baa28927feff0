#pragma once
#include <map>
#include <string>

#include "status.h"
namespace triton { namespace core {

using HostPolicyCmdlineConfig = std::map<std::string, std::string>;
TRITONSERVER_Error* SetNumaConfigOnThread(const HostPolicyCmdlineConfig& host_policy);
TRITONSERVER_Error* ResetNumaMemoryPolicy();

}}  // namespace triton::core
