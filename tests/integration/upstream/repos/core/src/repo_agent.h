#pragma once
#include <string>

#include "shared_library.h"
namespace triton { namespace core {

std::string TritonRepoAgentLibraryName(const std::string& repo_agent_name);
// Loads <folder>/<name>/<library>; it stays loaded.
TRITONSERVER_Error* LoadRepoAgent(const std::string& folder, const std::string& name);

}}  // namespace triton::core
