// A region that two processes allocate in, and that grows.
#pragma once
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "message_queue.h"
namespace triton { namespace backend { namespace python {

class SharedMemoryManager {
 public:
  // Makes the region, or opens it if `create` is false.
  SharedMemoryManager(const std::string& name, size_t default_size, size_t growth_size, bool create);
  ~SharedMemoryManager();

  // A copy of the bytes in the region. Only one process at a time may do this.
  Handle Store(const std::string& bytes);
  // The bytes, which are taken out of the region.
  std::string Take(Handle handle);

  template <typename T>
  Handle Construct()
  {
    void* place = Allocate(sizeof(T));
    new (place) T;
    return buffer_->get_handle_from_address(place);
  }
  // Stays valid when the region grows: older mappings are kept.
  template <typename T>
  T* Load(Handle handle)
  {
    return static_cast<T*>(At(handle));
  }

 private:
  void* Allocate(size_t size);
  void* At(Handle handle);
  void Map(bool create);
  void GrowIfNeeded(size_t size);

  std::string name_;
  size_t growth_size_;
  bool owner_;
  bi::shared_memory_object object_;
  std::vector<std::unique_ptr<bi::mapped_region>> regions_;
  std::unique_ptr<bi::managed_external_buffer> buffer_;
};

}}}  // namespace triton::backend::python
