#include <algorithm>

#include "macbuild/compat/thread.hpp"

namespace macbuild::compat {

namespace {
constexpr long kThreadBit = 1L << 30;
}

long thread_number(std::uint64_t id) { return kThreadBit | static_cast<long>(id & (kThreadBit - 1)); }

bool is_thread_number(long number) { return (number & ~(kThreadBit - 1)) == kThreadBit; }

Priority priority_for_nice(int nice)
{
    nice = std::clamp(nice, -20, 19);
    if (nice < 0)
        return {Quality::kUserInitiated, 0};
    if (nice < 10)
        return {Quality::kDefault, -nice};
    return {Quality::kUtility, 10 - nice};
}

std::string_view cut_utf8(std::string_view text, std::size_t bytes)
{
    if (text.size() <= bytes)
        return text;
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80)
        --bytes;
    return text.substr(0, bytes);
}

}  // namespace macbuild::compat
