#include "safe_text.hpp"

#include <unistd.h>

#include <cerrno>

namespace macbuild::compat {

SafeText& SafeText::text(const char* text) noexcept {
    while (*text != '\0') {
        put(*text++);
    }
    return *this;
}

SafeText& SafeText::number(std::uintmax_t value, unsigned width) noexcept {
    char digits[24];
    unsigned count = 0;
    do {
        digits[count++] = static_cast<char>('0' + value % 10);
        value /= 10;
    } while (value != 0);
    for (unsigned blank = count; blank < width; ++blank) {
        put(' ');
    }
    while (count != 0) {
        put(digits[--count]);
    }
    return *this;
}

SafeText& SafeText::address(std::uintptr_t value, unsigned digits) noexcept {
    unsigned left = 2 * sizeof(value);
    while (left > digits && (value >> (4 * (left - 1))) == 0) {
        --left;
    }
    text("0x");
    while (left != 0) {
        put("0123456789abcdef"[(value >> (4 * --left)) & 0xf]);
    }
    return *this;
}

void SafeText::flush() noexcept {
    std::size_t done = 0;
    while (done < size_) {
        const ssize_t count = write(descriptor_, buffer_ + done, size_ - done);
        if (count < 0 && errno != EINTR) {
            break;
        }
        done += count < 0 ? 0 : static_cast<std::size_t>(count);
    }
    size_ = 0;
}

void SafeText::put(char letter) noexcept {
    if (size_ == sizeof(buffer_)) {
        flush();
    }
    buffer_[size_++] = letter;
}

}  // namespace macbuild::compat
