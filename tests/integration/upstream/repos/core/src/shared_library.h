#pragma once
#include <string>

#include "status.h"
namespace triton { namespace core {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary();
  TRITONSERVER_Error* OpenLibraryHandle(const std::string& path);
  void* GetEntrypoint(const std::string& name) const;  // null if there is none

 private:
  void* handle_ = nullptr;
};

}}  // namespace triton::core
