// The parts of reading the stack that differ between systems.
#pragma once

#include <cstddef>
#include <cstdint>

namespace macbuild::compat {

// Stores the return addresses of the calling thread, innermost first; with a signal's context those of the interrupted
// code, the interrupted instruction first.
std::size_t read_stack(const void* context, std::uintptr_t* addresses, std::size_t room) noexcept;

}  // namespace macbuild::compat
