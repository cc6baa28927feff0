// Part of a file, read with checks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "backend_kit/error.hpp"

namespace torch_backend {

// A range of a file. Offsets are in bytes from its start; numbers are little-endian.
class Extent {
public:
    explicit Extent(const std::string& path);

    // A part of this one, with a name for messages. Throws backend_kit::Error when it is not inside.
    Extent part(std::uint64_t offset, std::uint64_t size, const std::string& name) const;

    std::uint64_t size() const { return size_; }

    // Throws backend_kit::Error (invalid argument): "<name>: <complaint>".
    [[noreturn]] void refuse(const std::string& complaint) const;

    // Refuses with "<what> is not inside" unless the range is.
    void require(std::uint64_t offset, std::uint64_t size, const char* what) const;

    void read(std::uint64_t offset, void* target, std::size_t size) const;

    // An unsigned number of 1 to 8 bytes.
    template <class Number>
    Number number(std::uint64_t offset) const {
        std::array<unsigned char, sizeof(Number)> bytes;
        read(offset, bytes.data(), bytes.size());
        std::uint64_t value = 0;
        for (std::size_t i = bytes.size(); i > 0; --i) value = value << 8 | bytes[i - 1];
        return static_cast<Number>(value);
    }
    std::uint16_t u16(std::uint64_t offset) const { return number<std::uint16_t>(offset); }
    std::uint32_t u32(std::uint64_t offset) const { return number<std::uint32_t>(offset); }
    std::uint64_t u64(std::uint64_t offset) const { return number<std::uint64_t>(offset); }

private:
    Extent() = default;

    std::shared_ptr<std::FILE> file_;
    std::string name_;
    std::uint64_t begin_ = 0;
    std::uint64_t size_ = 0;
};

// Checks the header of a shared library, ELF or Mach-O of 64 bits: all that it says is in the file is in the file.
// Throws backend_kit::Error (invalid argument).
void check_library(const Extent& library);

}  // namespace torch_backend
