// The stack of a thread: addresses, and the images that contain them. No tool is started and no symbol is looked up;
// the offsets are those that `atos` and `addr2line` accept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace macbuild::compat {

inline constexpr std::size_t most_frames = 128;

// An image of the process: its file and its start address.
struct Image {
    char path[1024];
    std::uintptr_t base;
};

// Writes the stack of the calling thread, one frame per line. Neither allocates nor locks. `context` is the third
// argument of a signal handler: then the stack is that of the interrupted code.
void write_stack_trace(int descriptor, const void* context = nullptr) noexcept;

// The same as text.
std::string stack_trace();

// The image that contains an address. Returns false if none does, or if the system's list is just being changed.
bool find_image(std::uintptr_t address, Image& image) noexcept;

// Follows a chain of frame records: each has the address of the caller's record and the return address. `low` and
// `high` bound the stack. Returns how many addresses were stored, at most `room`.
std::size_t follow_frames(std::uintptr_t frame, std::uintptr_t low, std::uintptr_t high, std::uintptr_t* addresses,
                          std::size_t room) noexcept;

}  // namespace macbuild::compat
