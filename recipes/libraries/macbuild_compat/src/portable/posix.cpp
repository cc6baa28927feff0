#include "macbuild/compat/posix.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <map>
#include <mutex>

#include "macbuild/compat/pages.hpp"
#include "macbuild/compat/shm_registry.hpp"
#include "macbuild/compat/thread.hpp"
#include "mapping.hpp"

namespace macbuild::compat {
namespace {

struct Shifted {
    std::size_t skip;
    std::size_t length;
};

// Mappings that start before the address that their owner knows, by that address.
struct ShiftedMappings {
    std::mutex mutex;
    std::map<std::uintptr_t, Shifted> by_address;
};

ShiftedMappings& shifted()
{
    static auto* const mappings = new ShiftedMappings;  // never destroyed: exit handlers unmap too
    return *mappings;
}

}  // namespace

void* map_region(void* address, std::size_t length, int protection, int flags, int descriptor, off_t offset, std::size_t page)
{
    const auto window = map_window(offset, length, page);
    if (!window || (window->skip != 0 && (flags & MAP_FIXED) != 0)) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    void* const start = mmap(address, window->length, protection, flags, descriptor, window->offset);
    if (start == MAP_FAILED || window->skip == 0)
        return start;
    char* const asked = static_cast<char*>(start) + window->skip;
    const std::lock_guard guard(shifted().mutex);
    shifted().by_address.insert_or_assign(reinterpret_cast<std::uintptr_t>(asked), Shifted{window->skip, length});
    return asked;
}

int unmap_region(void* address, std::size_t length)
{
    {
        const std::lock_guard guard(shifted().mutex);
        auto& known = shifted().by_address;
        if (const auto found = known.find(reinterpret_cast<std::uintptr_t>(address)); found != known.end()) {
            const Shifted mapping = found->second;
            if (mapping.length != length) {
                errno = EINVAL;
                return -1;
            }
            known.erase(found);
            return munmap(static_cast<char*>(address) - mapping.skip, length + mapping.skip);
        }
    }
    return munmap(address, length);
}

bool has_room(bool is_region, off_t size, off_t wanted) { return is_region && wanted >= 0 && size >= wanted; }

}  // namespace macbuild::compat

using namespace macbuild::compat;

extern "C" {

int macbuild_compat_shm_open(const char* key, int flags, ...)
{
    std::va_list rest;
    va_start(rest, flags);
    // Darwin's prototype is variadic, so the mode may be missing; an int, as smaller types are promoted.
    const auto mode = (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(rest, int)) : mode_t{0};
    va_end(rest);
    const int region = ShmRegistry::of_user().open(key, flags, mode);
    if (region >= 0)
        return region;
    errno = -region;
    return -1;
}

int macbuild_compat_shm_unlink(const char* key)
{
    const int error = ShmRegistry::of_user().unlink(key);
    if (error == 0)
        return 0;
    errno = error;
    return -1;
}

int macbuild_compat_ftruncate(int descriptor, off_t size)
{
    if (ftruncate(descriptor, size) == 0)
        return 0;
    const int error = errno;
    struct stat facts{};
    // Darwin gives a region a mode without a type (pshm_stat in xnu, bsd/kern/posix_shm.c).
    if (error == EINVAL && fstat(descriptor, &facts) == 0 && has_room((facts.st_mode & S_IFMT) == 0, facts.st_size, size))
        return 0;
    errno = error;
    return -1;
}

void* macbuild_compat_mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
    return map_region(address, length, protection, flags, descriptor, offset, page_size());
}

int macbuild_compat_munmap(void* address, size_t length) { return unmap_region(address, length); }

long macbuild_compat_gettid(void) { return thread_number(own_thread_id()); }

long macbuild_compat_syscall(long number, ...)
{
    if (number == kSysGettid)
        return macbuild_compat_gettid();
    errno = ENOSYS;
    return -1;
}

int macbuild_compat_setpriority(int which, id_t who, int value)
{
    if (which != PRIO_PROCESS || !is_thread_number(static_cast<long>(who)))
        return setpriority(which, who, value);
    const int error = static_cast<long>(who) == macbuild_compat_gettid() ? set_own_thread_nice(value) : ESRCH;
    if (error == 0)
        return 0;
    errno = error;
    return -1;
}

}  // extern "C"
