// SHA-256 (FIPS 180-4), for names only: nothing here is secret or long.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace macbuild::compat {

std::array<std::uint8_t, 32> sha256(std::string_view data);

// The first 16 bytes of SHA-256 in base32 (RFC 4648, lower case, no padding): 26 characters.
std::string short_hash(std::string_view data);

}  // namespace macbuild::compat
