#include <mach-o/dyld.h>
#include <stdlib.h>
#include <string.h>

#include <cstdint>
#include <memory>

#include "macbuild/compat/libraries.hpp"

namespace macbuild::compat {

std::string executable_path() {
    std::uint32_t size = 0;
    _NSGetExecutablePath(nullptr, &size);
    std::string path(size, '\0');
    if (_NSGetExecutablePath(path.data(), &size) != 0) {
        return {};
    }
    path.resize(strlen(path.c_str()));
    const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), free);
    return real ? std::string(real.get()) : path;
}

}  // namespace macbuild::compat
