// Where a thread is: addresses, and the images that they are in. No tool is started and no symbol is looked up; the
// offsets are what `atos` and `addr2line` ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace macbuild::compat {

inline constexpr std::size_t most_frames = 128;

// An image of the process: its file and where it begins.
struct Image {
    char path[1024];
    std::uintptr_t base;
};

// Writes the stack of the calling thread, one frame a line. Neither allocates nor locks. `context` is what a signal
// handler got as its third argument: then the stack is that of the interrupted code.
void write_stack_trace(int descriptor, const void* context = nullptr) noexcept;

// The same as text.
std::string stack_trace();

// The image that has an address in it. False if none has, or the system's list is being changed at this moment.
bool find_image(std::uintptr_t address, Image& image) noexcept;

// Follows a chain of frame records: each is the address of the caller's record, and the address to return to. `low`
// and `high` bound the stack. Returns how many addresses were stored, at most `room`.
std::size_t follow_frames(std::uintptr_t frame, std::uintptr_t low, std::uintptr_t high, std::uintptr_t* addresses,
                          std::size_t room) noexcept;

}  // namespace macbuild::compat
