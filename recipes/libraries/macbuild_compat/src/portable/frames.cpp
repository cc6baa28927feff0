#include "macbuild/compat/stack_trace.hpp"
#include "safe_text.hpp"
#include "stack.hpp"

namespace macbuild::compat {

std::size_t follow_frames(std::uintptr_t frame, std::uintptr_t low, std::uintptr_t high, std::uintptr_t* addresses,
                          std::size_t room) noexcept {
    constexpr std::uintptr_t record = 2 * sizeof(std::uintptr_t);
    std::size_t count = 0;
    while (count < room && frame >= low && frame < high && high - frame >= record
           && frame % alignof(std::uintptr_t) == 0) {
        const auto* words = reinterpret_cast<const std::uintptr_t*>(frame);
        if (words[1] == 0) {
            break;
        }
        addresses[count++] = words[1];
        // The stack grows down, so each caller's record is above; anything else would be a circle.
        low = frame + record;
        frame = words[0];
    }
    return count;
}

void write_stack_trace(int descriptor, const void* context) noexcept {
    std::uintptr_t addresses[most_frames];
    const std::size_t count = read_stack(context, addresses, most_frames);
    SafeText out(descriptor);
    for (std::size_t index = 0; index < count; ++index) {
        Image image;
        out.text("  ").number(index, 3).text("  ").address(addresses[index], 12);
        if (find_image(addresses[index], image)) {
            out.text("  ").text(image.path).text(" + ").address(addresses[index] - image.base);
        }
        out.text("\n");
        out.flush();  // The next step may crash.
    }
}

}  // namespace macbuild::compat
