// Text for a signal handler: only a buffer on the stack and write(2), which are safe there (sigaction(2)).
#pragma once

#include <cstddef>
#include <cstdint>

namespace macbuild::compat {

class SafeText {
public:
    explicit SafeText(int descriptor) noexcept : descriptor_(descriptor) {}
    ~SafeText() { flush(); }
    SafeText(const SafeText&) = delete;
    SafeText& operator=(const SafeText&) = delete;

    SafeText& text(const char* text) noexcept;
    SafeText& number(std::uintmax_t value, unsigned width = 1) noexcept;
    SafeText& address(std::uintptr_t value, unsigned digits = 1) noexcept;
    void flush() noexcept;

private:
    void put(char letter) noexcept;

    int descriptor_;
    std::size_t size_ = 0;
    char buffer_[512];
};

}  // namespace macbuild::compat
