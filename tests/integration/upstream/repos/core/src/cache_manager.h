#pragma once
#include <string>

#include "shared_library.h"
namespace triton { namespace core {

std::string TritonCacheLibraryName(const std::string& cache_name);
// Loads <folder>/<name>/<library>; it stays loaded.
TRITONSERVER_Error* LoadCache(const std::string& folder, const std::string& name);

}}  // namespace triton::core
