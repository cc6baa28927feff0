#include "shared_library.h"

#include <dlfcn.h>
namespace triton { namespace core {

SharedLibrary::~SharedLibrary()
{
  if (handle_ != nullptr) {
    dlclose(handle_);
  }
}

TRITONSERVER_Error*
SharedLibrary::OpenLibraryHandle(const std::string& path)
{
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    return NewError(TRITONSERVER_ERROR_NOT_FOUND, std::string("unable to load shared library: ") + dlerror());
  }
  return nullptr;
}

void*
SharedLibrary::GetEntrypoint(const std::string& name) const
{
  return dlsym(handle_, name.c_str());
}

}}  // namespace triton::core
