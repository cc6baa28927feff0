#include "shm_manager.h"

#include <atomic>
#include <cstring>
namespace triton { namespace backend { namespace python {

namespace {
// At the front of the region: how much of it is in use.
struct Head {
  std::atomic<uint64_t> size;
};
constexpr size_t kHead = 64;
constexpr size_t kAlignment = 32;
}  // namespace

SharedMemoryManager::SharedMemoryManager(
    const std::string& name, size_t default_size, size_t growth_size, bool create)
    : name_(name), growth_size_(growth_size), owner_(create)
{
  if (create) {
    bi::shared_memory_object::remove(name.c_str());
    object_ = bi::shared_memory_object(bi::create_only, name.c_str(), bi::read_write);
    object_.truncate(default_size);
  } else {
    object_ = bi::shared_memory_object(bi::open_only, name.c_str(), bi::read_write);
  }
  Map(create);
}

SharedMemoryManager::~SharedMemoryManager()
{
  if (owner_) {
    bi::shared_memory_object::remove(name_.c_str());
  }
}

void
SharedMemoryManager::Map(bool create)
{
  regions_.push_back(std::make_unique<bi::mapped_region>(object_, bi::read_write));
  const auto& region = regions_.back();
  char* base = static_cast<char*>(region->get_address());
  const size_t size = region->get_size() - kHead;
  if (create) {
    (new (base) Head)->size = region->get_size();
    buffer_ = std::make_unique<bi::managed_external_buffer>(bi::create_only, base + kHead, size);
  } else {
    buffer_ = std::make_unique<bi::managed_external_buffer>(bi::open_only, base + kHead, size);
  }
}

void
SharedMemoryManager::GrowIfNeeded(size_t size)
{
  if (buffer_->get_free_memory() > 2 * size + 4096) {
    return;
  }
  const size_t more = (2 * size / growth_size_ + 1) * growth_size_;
  const size_t old = regions_.back()->get_size();
  object_.truncate(old + more);
  Map(false);
  buffer_->grow(more);
  reinterpret_cast<Head*>(regions_.back()->get_address())->size = old + more;
}

void*
SharedMemoryManager::Allocate(size_t size)
{
  At(0);
  GrowIfNeeded(size);
  return buffer_->allocate_aligned(size, kAlignment);
}

void*
SharedMemoryManager::At(Handle handle)
{
  const size_t size = static_cast<Head*>(regions_.back()->get_address())->size;
  if (size > regions_.back()->get_size()) {
    Map(false);
  }
  return buffer_->get_address_from_handle(handle);
}

Handle
SharedMemoryManager::Store(const std::string& bytes)
{
  char* place = static_cast<char*>(Allocate(sizeof(uint64_t) + bytes.size()));
  const uint64_t size = bytes.size();
  memcpy(place, &size, sizeof(size));
  memcpy(place + sizeof(size), bytes.data(), bytes.size());
  return buffer_->get_handle_from_address(place);
}

std::string
SharedMemoryManager::Take(Handle handle)
{
  char* place = static_cast<char*>(At(handle));
  uint64_t size = 0;
  memcpy(&size, place, sizeof(size));
  std::string bytes(place + sizeof(size), size);
  buffer_->deallocate(place);
  return bytes;
}

}}}  // namespace triton::backend::python
