// The rules behind macbuild_compat_ftruncate, _mmap and _munmap, with the page size and the kernel's answer as arguments.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace macbuild::compat {

void* map_region(void* address, std::size_t length, int protection, int flags, int descriptor, off_t offset, std::size_t page);
int unmap_region(void* address, std::size_t length);

// Returns whether a refused ftruncate() of a region is harmless: `is_region` has `size` bytes and `wanted` are
// requested.
bool has_room(bool is_region, off_t size, off_t wanted);

}  // namespace macbuild::compat
