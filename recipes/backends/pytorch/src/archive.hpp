// Zip archives as PyTorch writes them, checked before anything in them is used. No LibTorch here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "extent.hpp"

namespace torch_backend {

struct Member {
    std::string name;
    std::uint32_t crc = 0;
    Extent data;
};

// Checks that an archive is whole: its structure, the CRC of each member, and that the shared libraries in it are what
// their headers say, so that the system's loader does not read beyond their ends. PyTorch's own reader checks no CRC.
// Returns the members, whose names are relative paths that stay inside any folder. Throws backend_kit::Error (invalid
// argument) that names what is damaged. Needs little memory, whatever the file says.
std::vector<Member> check_archive(const std::string& path);

// Returns whether a member is a shared library, by its name.
bool is_library(std::string_view name);

}  // namespace torch_backend
