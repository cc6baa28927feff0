#include "backend_kit/bytes.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backend_kit/error.hpp"

namespace backend_kit {
namespace {

constexpr std::size_t length_size = 4;

std::size_t read_length(const std::byte* data) noexcept {
    std::uint32_t value = 0;
    for (std::size_t index = 0; index < length_size; ++index) {
        value |= std::to_integer<std::uint32_t>(data[index]) << (8 * index);
    }
    return value;
}

// Reads segments as if they were one piece.
class Walker {
public:
    explicit Walker(std::span<const Segment> segments) : segments_(segments) {
        for (const Segment& segment : segments) {
            left_ += segment.size;
        }
    }

    std::size_t left() const noexcept { return left_; }

    // Advances by `size` bytes, which must be available; copies them if there is a target.
    void advance(std::size_t size, std::byte* target) noexcept {
        left_ -= size;
        while (size > 0) {
            const Segment& segment = segments_[index_];
            const std::size_t piece = std::min(size, segment.size - offset_);
            if (target != nullptr && piece > 0) {
                std::memcpy(target, segment.data + offset_, piece);
                target += piece;
            }
            offset_ += piece;
            size -= piece;
            if (offset_ == segment.size) {
                ++index_;
                offset_ = 0;
            }
        }
    }

private:
    std::span<const Segment> segments_;
    std::size_t index_ = 0;
    std::size_t offset_ = 0;
    std::size_t left_ = 0;
};

std::string element_text(std::size_t index, std::size_t count) {
    return "element " + std::to_string(index) + " of " + std::to_string(count);
}

}  // namespace

void check_bytes(std::span<const Segment> segments, std::size_t count) {
    Walker walker(segments);
    for (std::size_t index = 0; index < count; ++index) {
        if (walker.left() < length_size) {
            throw invalid_argument(element_text(index, count) + " has no length: " + std::to_string(walker.left()) +
                                   " bytes are left");
        }
        std::byte bytes[length_size];
        walker.advance(length_size, bytes);
        const std::size_t length = read_length(bytes);
        if (walker.left() < length) {
            throw invalid_argument(element_text(index, count) + " is " + std::to_string(length) + " bytes long, but " +
                                   std::to_string(walker.left()) + " are left");
        }
        walker.advance(length, nullptr);
    }
    if (walker.left() > 0) {
        throw invalid_argument(std::to_string(walker.left()) + " bytes follow the last of " + std::to_string(count) +
                               " elements");
    }
}

Segment first_element(Segment segment) noexcept {
    if (segment.size >= length_size) {
        segment.size = std::min(segment.size, length_size + read_length(segment.data));
    }
    return segment;
}

std::vector<std::string_view> decode_bytes(std::span<const std::byte> data, std::size_t count) {
    const Segment whole{data.data(), data.size()};
    check_bytes({&whole, 1}, count);
    std::vector<std::string_view> elements;
    elements.reserve(count);
    std::size_t offset = 0;
    for (std::size_t index = 0; index < count; ++index) {
        const std::size_t length = read_length(data.data() + offset);
        offset += length_size;
        elements.emplace_back(reinterpret_cast<const char*>(data.data() + offset), length);
        offset += length;
    }
    return elements;
}

std::size_t encoded_size(std::span<const std::string_view> elements) {
    std::size_t size = 0;
    for (const std::string_view element : elements) {
        if (element.size() > std::numeric_limits<std::uint32_t>::max()) {
            throw invalid_argument("an element of " + std::to_string(element.size()) + " bytes is too long for BYTES");
        }
        size += length_size + element.size();
    }
    return size;
}

void encode_bytes(std::span<const std::string_view> elements, std::byte* target) noexcept {
    for (const std::string_view element : elements) {
        for (std::size_t index = 0; index < length_size; ++index) {
            *target++ = static_cast<std::byte>((element.size() >> (8 * index)) & 0xFF);
        }
        if (!element.empty()) {
            std::memcpy(target, element.data(), element.size());
            target += element.size();
        }
    }
}

}  // namespace backend_kit
