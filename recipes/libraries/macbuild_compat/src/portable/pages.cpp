#include "macbuild/compat/pages.hpp"

#include <unistd.h>

#include <cstdint>
#include <limits>

namespace macbuild::compat {

std::size_t page_size()
{
    static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

std::optional<MapWindow> map_window(off_t offset, std::size_t length, std::size_t page)
{
    if (offset < 0 || static_cast<std::uint64_t>(offset) % kLinuxPage != 0)
        return std::nullopt;
    const auto skip = static_cast<std::size_t>(offset) & (page - 1);
    if (length > std::numeric_limits<std::size_t>::max() - skip)
        return std::nullopt;
    return MapWindow{offset - static_cast<off_t>(skip), skip, length + skip};
}

}  // namespace macbuild::compat
