#include <algorithm>
#include <cstring>

#include "backend_kit/bytes.hpp"
#include "testing.hpp"

using namespace backend_kit;
using std::string_view;

namespace {

std::vector<std::byte> encoded(const std::vector<string_view>& elements) {
    std::vector<std::byte> result(encoded_size(elements));
    encode_bytes(elements, result.data());
    return result;
}

std::vector<std::byte> raw(string_view text) {
    std::vector<std::byte> result(text.size());
    std::transform(text.begin(), text.end(), result.begin(),
                   [](char character) { return static_cast<std::byte>(character); });
    return result;
}

bool accepts(std::span<const Segment> segments, std::size_t count) {
    try {
        check_bytes(segments, count);
        return true;
    } catch (const Error& error) {
        CHECK_EQUAL(static_cast<int>(error.code()), static_cast<int>(TRITONSERVER_ERROR_INVALID_ARG));
        return false;
    }
}

}  // namespace

TEST(elements_survive_a_round_trip) {
    const std::vector<string_view> elements{"one", "", string_view("a\0b", 3), "\xF0\x9F\x98\x80"};
    const std::vector<std::byte> data = encoded(elements);
    CHECK_EQUAL(data.size(), 4U * 4 + 3 + 0 + 3 + 4);
    CHECK(decode_bytes(data, 4) == elements);
    CHECK(decode_bytes({}, 0).empty());
}

TEST(length_is_little_endian) {
    const std::string long_text(0x0102, 'x');
    const std::vector<std::byte> data = encoded({long_text});
    CHECK(std::equal(data.begin(), data.begin() + 4, raw(string_view("\x02\x01\0\0", 4)).begin()));
}

TEST(errors_say_what_is_damaged) {
    CHECK_INVALID("element 0 of 1 has no length: 3 bytes are left", decode_bytes(raw("abc"), 1));
    CHECK_INVALID("element 1 of 2 has no length: 0 bytes are left", decode_bytes(encoded({"a"}), 2));
    CHECK_INVALID("element 0 of 1 is 4294967295 bytes long, but 2 are left", decode_bytes(raw("\xFF\xFF\xFF\xFF"
                                                                                              "ab"),
                                                                                          1));
    CHECK_INVALID("5 bytes follow the last of 1 elements", decode_bytes(encoded({"a", "b"}), 1));
    CHECK_INVALID("5 bytes follow the last of 0 elements", decode_bytes(encoded({"a"}), 0));
}

TEST(the_first_element_is_found) {
    const std::vector<std::byte> bytes{std::byte{1}, std::byte{0},   std::byte{0},
                                       std::byte{0}, std::byte{'a'}, std::byte{0}};
    CHECK_EQUAL(first_element({bytes.data(), 6}).size, 5U);
    CHECK_EQUAL(first_element({bytes.data(), 4}).size, 4U);
    CHECK_EQUAL(first_element({bytes.data(), 3}).size, 3U);
    CHECK_EQUAL(first_element({}).size, 0U);
}

TEST(any_cut_into_segments_gives_the_same_answer) {
    testing::Random random(7);
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::string> texts(random.below(4));
        for (std::string& text : texts) {
            text.assign(random.below(6), 'q');
        }
        std::vector<std::byte> data = encoded({texts.begin(), texts.end()});
        if (!data.empty() && random.below(2) == 1) {
            data[random.below(data.size())] = static_cast<std::byte>(random.below(256));
            data.resize(random.below(data.size() + 1));
        }
        // Each piece is a separate block, so that reading beyond its end is found.
        std::vector<std::vector<std::byte>> pieces;
        std::size_t start = 0;
        while (start < data.size()) {
            const std::size_t size = random.below(data.size() - start + 1);
            pieces.emplace_back(data.begin() + static_cast<std::ptrdiff_t>(start),
                                data.begin() + static_cast<std::ptrdiff_t>(start + size));
            start += size;
        }
        std::vector<Segment> segments;
        for (const auto& piece : pieces) {
            segments.push_back({piece.data(), piece.size()});
        }
        const Segment whole{data.data(), data.size()};
        CHECK_EQUAL(accepts(segments, texts.size()), accepts({&whole, 1}, texts.size()));
    }
}

TEST(decoded_elements_encode_to_the_same_bytes) {
    testing::Random random(11);
    int decoded = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::byte> data(random.below(24));
        for (std::byte& byte : data) {
            byte = static_cast<std::byte>(random.below(4) == 0 ? random.below(256) : random.below(3));
        }
        const std::size_t count = random.below(4);
        try {
            const std::vector<string_view> elements = decode_bytes(data, count);
            CHECK_EQUAL(elements.size(), count);
            CHECK(encoded(elements) == data);
            ++decoded;
        } catch (const Error&) {
        }
    }
    CHECK(decoded > 100);
}
