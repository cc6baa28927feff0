// BYTES tensors: each element is its length (4 bytes, little-endian) and then its bytes, elements in row-major order.
// Specified by Triton's binary tensor data extension of the inference protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace backend_kit {

// A piece of a tensor in memory.
struct Segment {
    const std::byte* data = nullptr;
    std::size_t size = 0;
};

// Checks that segments, read one after the other, hold exactly `count` elements. Throws Error (invalid argument) that
// says which element is cut off, or how many bytes follow the last one.
void check_bytes(std::span<const Segment> segments, std::size_t count);

// The part of a segment that is its first element with the length; all of it when the element is cut off.
Segment first_element(Segment segment) noexcept;

// The elements of an encoded tensor; the views point into `data`. Throws Error as check_bytes does.
std::vector<std::string_view> decode_bytes(std::span<const std::byte> data, std::size_t count);

// Bytes needed to encode the elements. Throws Error (invalid argument) for an element of 4 GiB or more.
std::size_t encoded_size(std::span<const std::string_view> elements);

// Writes the elements to `target`, which has room for encoded_size() bytes.
void encode_bytes(std::span<const std::string_view> elements, std::byte* target) noexcept;

}  // namespace backend_kit
