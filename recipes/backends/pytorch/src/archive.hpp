// Zip archives as PyTorch writes them, checked before anything in them is used. No LibTorch here.
#pragma once

#include <cstdint>
#include <string>

namespace torch_backend {

// Checks that an archive is whole: its structure, the CRC of each member, and that the shared libraries in it are what
// their headers say, so that the system's loader does not read beyond their ends. PyTorch's own reader checks no CRC.
// Throws backend_kit::Error (invalid argument) that names what is damaged. Needs little memory, whatever the file says.
void check_archive(const std::string& path);

}  // namespace torch_backend
