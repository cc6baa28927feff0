#include "shared_memory_manager.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "triton/common/logging.h"
namespace triton { namespace server {
namespace {

TRITONSERVER_Error*
Failure(TRITONSERVER_Error_Code code, const std::string& text)
{
  return TRITONSERVER_ErrorNew(code, text.c_str());
}

TRITONSERVER_Error*
OpenSharedMemoryRegion(const std::string& shm_key, int* shm_fd)
{
  *shm_fd = shm_open(shm_key.c_str(), O_RDWR, S_IRUSR | S_IWUSR);
  if (*shm_fd == -1) {
    return Failure(
        TRITONSERVER_ERROR_INVALID_ARG, "Unable to open shared memory region: '" + shm_key + "': " + strerror(errno));
  }
  return nullptr;
}

TRITONSERVER_Error*
MapSharedMemory(int shm_fd, size_t offset, size_t byte_size, void** base)
{
  *base = mmap(NULL, byte_size, PROT_WRITE | PROT_READ, MAP_SHARED, shm_fd, off_t(offset));
  if (*base == MAP_FAILED) {
    return Failure(
        TRITONSERVER_ERROR_INVALID_ARG, std::string("unable to process address space: ") + strerror(errno));
  }
  return nullptr;
}

std::string
Quoted(const std::string& text)
{
  std::string quoted(1, '"');
  for (const char each : text) {
    if (each == '"' || each == '\\') {
      quoted += '\\';
    }
    quoted += each;
  }
  quoted += '"';
  return quoted;
}

}  // namespace

SharedMemoryRegion::~SharedMemoryRegion()
{
  if (base != nullptr && munmap(base, byte_size) != 0) {
    LOG_ERROR << "cannot unmap '" << name << "': " << strerror(errno);
  }
}

TRITONSERVER_Error*
SharedMemoryManager::RegisterSystemSharedMemory(
    const std::string& name, const std::string& shm_key, size_t offset, size_t byte_size)
{
  if (!allowed_) {
    return Failure(TRITONSERVER_ERROR_UNSUPPORTED, "shared memory of clients is off: start with --allow-client-shm=true");
  }
  const size_t start = shm_key.find_first_not_of('/');
  if (start != std::string::npos && shm_key.compare(start, strlen(kTritonSharedMemoryRegionPrefix),
                                                    kTritonSharedMemoryRegionPrefix) == 0) {
    return Failure(TRITONSERVER_ERROR_INVALID_ARG, "cannot register a region of the server itself: '" + shm_key + "'");
  }
  std::lock_guard<std::mutex> lock(mu_);
  if (regions_.count(name) != 0) {
    return Failure(TRITONSERVER_ERROR_ALREADY_EXISTS, "shared memory region '" + name + "' already in manager");
  }
  int shm_fd = -1;
  RETURN_IF_ERR(OpenSharedMemoryRegion(shm_key, &shm_fd));
  auto region = std::make_shared<SharedMemoryRegion>();
  region->name = name;
  region->key = shm_key;
  region->offset = offset;
  region->byte_size = byte_size;
  struct stat st;
  TRITONSERVER_Error* error = nullptr;
  if (fstat(shm_fd, &st) != 0 || byte_size == 0 || size_t(st.st_size) < offset || size_t(st.st_size) - offset < byte_size) {
    error = Failure(
        TRITONSERVER_ERROR_INVALID_ARG, "failed to register shared memory region '" + name + "': invalid args");
  } else {
    void* base = nullptr;
    error = MapSharedMemory(shm_fd, offset, byte_size, &base);
    if (error == nullptr) {
      region->base = base;
    }
  }
  close(shm_fd);
  if (error == nullptr) {
    regions_[name] = std::move(region);
  }
  return error;
}

TRITONSERVER_Error*
SharedMemoryManager::GetMemoryInfo(
    const std::string& name, size_t offset, size_t byte_size, void** base, std::shared_ptr<SharedMemoryRegion>* hold)
{
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = regions_.find(name);
  if (found == regions_.end()) {
    return Failure(TRITONSERVER_ERROR_NOT_FOUND, "Unable to find shared memory region: '" + name + "'");
  }
  if (offset > found->second->byte_size || byte_size > found->second->byte_size - offset) {
    return Failure(TRITONSERVER_ERROR_INVALID_ARG, "Invalid offset or size for shared memory region: '" + name + "'");
  }
  *base = static_cast<char*>(found->second->base) + offset;
  *hold = found->second;
  return nullptr;
}

TRITONSERVER_Error*
SharedMemoryManager::GetStatus(const std::string& name, std::string* json)
{
  std::lock_guard<std::mutex> lock(mu_);
  if (!name.empty() && regions_.count(name) == 0) {
    return Failure(TRITONSERVER_ERROR_NOT_FOUND, "Unable to find system shared memory region: '" + name + "'");
  }
  *json = "[";
  for (const auto& [each, region] : regions_) {
    if (name.empty() || name == each) {
      json->append(json->size() > 1 ? ",{\"name\":" : "{\"name\":").append(Quoted(each));
      json->append(",\"key\":").append(Quoted(region->key));
      json->append(",\"offset\":").append(std::to_string(region->offset));
      json->append(",\"byte_size\":").append(std::to_string(region->byte_size)).append("}");
    }
  }
  *json += "]";
  return nullptr;
}

TRITONSERVER_Error*
SharedMemoryManager::Unregister(const std::string& name)
{
  std::lock_guard<std::mutex> lock(mu_);
  regions_.erase(name);
  return nullptr;
}

void
SharedMemoryManager::UnregisterAll()
{
  std::lock_guard<std::mutex> lock(mu_);
  regions_.clear();
}

}}  // namespace triton::server
