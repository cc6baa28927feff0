#include "cache_manager.h"

#include <memory>
#include <mutex>
#include <vector>

#include "filesystem/api.h"
namespace triton { namespace core {

std::string
TritonCacheLibraryName(const std::string& cache_name)
{
#ifdef _WIN32
  return std::string("tritoncache_") + cache_name + ".dll";
#else
  return std::string("libtritoncache_") + cache_name + ".so";
#endif
}

TRITONSERVER_Error*
LoadCache(const std::string& folder, const std::string& name)
{
  static std::mutex mu;
  static std::vector<std::unique_ptr<SharedLibrary>> loaded;
  const std::string path = JoinPath({folder, name});
  const std::string cache_libname = TritonCacheLibraryName(name);
  const std::string file = JoinPath({path, cache_libname});
  if (!FileExists(file)) {
    return NewError(TRITONSERVER_ERROR_NOT_FOUND, "unable to find '" + cache_libname + "' in " + path);
  }
  auto library = std::make_unique<SharedLibrary>();
  RETURN_IF_ERROR(library->OpenLibraryHandle(file));
  std::lock_guard<std::mutex> lock(mu);
  loaded.push_back(std::move(library));
  return nullptr;
}

}}  // namespace triton::core
