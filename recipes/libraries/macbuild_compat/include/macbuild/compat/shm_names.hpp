// Names of POSIX shared memory that Darwin accepts, made from keys of any length.
//
// Darwin compares a name byte for byte and refuses one that is longer than 31 bytes (PSHMNAMLEN and pshm_get_name in
// xnu, bsd/kern/posix_shm.c); Linux allows 255 and drops leading slashes. The rule, which
// recipes/libraries/macbuild_compat/python/triton_shm_names.py also follows:
//
//   1. Leading slashes are dropped. The rest is the body; an empty one is not a key.
//   2. A body without a slash, of at most 30 bytes, is its own name: "/" + body.
//   3. Any other: "/tsm-" + the first 16 bytes of SHA-256 of the body in base32 (RFC 4648, lower case, no padding), 31
//      bytes in all. So a name made this way stays the same when it is given as a key.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace macbuild::compat {

inline constexpr std::size_t kLongestShmName = 31;  // bytes, with the slash
inline constexpr std::string_view kHashedShmPrefix = "/tsm-";

// The key without its leading slashes.
std::string_view shm_body(std::string_view key);

// The name for a key; empty if the key has no body or contains a zero byte.
std::string shm_name(std::string_view key);

// Returns whether a name may belong to a key other than itself.
bool is_hashed_shm_name(std::string_view name);

}  // namespace macbuild::compat
