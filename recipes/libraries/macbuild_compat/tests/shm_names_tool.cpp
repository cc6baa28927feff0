// For the tests that compare with Python (tests/integration/test_compat_shm.py). Keys are hexadecimal.
//   names            prints the name for each key read from stdin, hexadecimal, one per line
//   make KEY TEXT    makes a region with that text and ends as in a crash: the region stays
//   read KEY         prints the contents of a region, up to the first zero
//   list             prints name, key and creator of each region
//   clean            removes regions of processes that ended; prints their keys
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <string>

#include "macbuild/compat/shm_names.hpp"
#include "macbuild/compat/shm_registry.hpp"

using namespace macbuild::compat;

namespace {

std::string from_hex(const std::string& text)
{
    std::string bytes;
    for (std::size_t at = 0; at + 1 < text.size(); at += 2)
        bytes += static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16));
    return bytes;
}

std::string to_hex(const std::string& bytes)
{
    std::string text;
    for (const char byte : bytes) {
        const auto value = static_cast<unsigned char>(byte);
        text += "0123456789abcdef"[value >> 4];
        text += "0123456789abcdef"[value & 15];
    }
    return text;
}

int region(const std::string& key, int flags, const char* text)
{
    const int descriptor = ShmRegistry::of_user().open(key, flags, 0600);
    if (descriptor < 0) {
        std::cerr << std::strerror(-descriptor) << '\n';
        return 1;
    }
    if (text != nullptr && ftruncate(descriptor, 4096) == -1)
        return 1;
    auto* const bytes = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
    if (bytes == MAP_FAILED)
        return 1;
    if (text != nullptr)
        std::strncpy(bytes, text, 4095);
    else
        std::cout << bytes << '\n';
    return 0;
}

}  // namespace

int main(int count, char** words)
{
    const std::string what = count > 1 ? words[1] : "";
    if (what == "names")
        for (std::string line; std::getline(std::cin, line);)
            std::cout << to_hex(shm_name(from_hex(line))) << '\n';
    else if (what == "make" && count == 4)
        return region(from_hex(words[2]), O_CREAT | O_EXCL | O_RDWR, words[3]);
    else if (what == "read" && count == 3)
        return region(from_hex(words[2]), O_RDWR, nullptr);
    else if (what == "list")
        for (const Region& one : ShmRegistry::of_user().list())
            std::cout << to_hex(one.name) << ' ' << to_hex(one.key) << ' ' << one.creator.pid << '\n';
    else if (what == "clean")
        for (const Region& one : ShmRegistry::of_user().remove_stale())
            std::cout << to_hex(one.key) << '\n';
    else
        return 2;
    return 0;
}
