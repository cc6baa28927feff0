// Offsets of mappings on a machine whose pages are not 4 KiB (Apple silicon: 16 KiB).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

namespace macbuild::compat {

// The page size that code written for Linux may assume: offsets in multiples of it work there.
inline constexpr std::size_t kLinuxPage = 4096;

// The size of a page of this process, in bytes.
std::size_t page_size();

// The mapping that contains `length` bytes at `offset`.
struct MapWindow {
    off_t offset = 0;        // a multiple of the page
    std::size_t skip = 0;    // from the start of the mapping to the requested byte
    std::size_t length = 0;  // bytes to map, skip included
};

// The window for an offset in multiples of kLinuxPage, with pages of `page` bytes (a power of two); nothing for any
// other offset, as on Linux.
std::optional<MapWindow> map_window(off_t offset, std::size_t length, std::size_t page);

}  // namespace macbuild::compat
