#include "macbuild/compat/stack_trace.hpp"

#include <cstdio>

#include "stack.hpp"

namespace macbuild::compat {

std::string stack_trace() {
    std::uintptr_t addresses[most_frames];
    const std::size_t count = read_stack(nullptr, addresses, most_frames);
    std::string text;
    for (std::size_t index = 0; index < count; ++index) {
        Image image;
        char line[sizeof(image.path) + 64];
        const auto address = static_cast<unsigned long long>(addresses[index]);
        if (find_image(addresses[index], image)) {
            const auto offset = static_cast<unsigned long long>(addresses[index] - image.base);
            std::snprintf(line, sizeof(line), "  %3zu  0x%012llx  %s + 0x%llx\n", index, address, image.path, offset);
        } else {
            std::snprintf(line, sizeof(line), "  %3zu  0x%012llx\n", index, address);
        }
        text += line;
    }
    return text;
}

}  // namespace macbuild::compat
