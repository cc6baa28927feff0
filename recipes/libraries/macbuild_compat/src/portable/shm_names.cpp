#include "macbuild/compat/shm_names.hpp"

#include <algorithm>

#include "sha256.hpp"

namespace macbuild::compat {

std::string_view shm_body(std::string_view key)
{
    key.remove_prefix(std::min(key.find_first_not_of('/'), key.size()));
    return key;
}

std::string shm_name(std::string_view key)
{
    const std::string_view body = shm_body(key);
    if (body.empty() || body.find('\0') != std::string_view::npos)
        return {};
    if (body.size() < kLongestShmName && body.find('/') == std::string_view::npos)
        return "/" + std::string(body);
    return std::string(kHashedShmPrefix) + short_hash(body);
}

bool is_hashed_shm_name(std::string_view name)
{
    return name.size() == kLongestShmName && name.starts_with(kHashedShmPrefix) &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567", kHashedShmPrefix.size()) == std::string_view::npos;
}

}  // namespace macbuild::compat
