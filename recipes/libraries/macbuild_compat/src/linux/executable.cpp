#include <limits.h>
#include <unistd.h>

#include "macbuild/compat/libraries.hpp"

namespace macbuild::compat {

std::string executable_path() {
    char path[PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
    return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : std::string();
}

}  // namespace macbuild::compat
