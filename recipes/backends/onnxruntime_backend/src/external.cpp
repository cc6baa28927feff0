#include "external.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>

namespace onnx_backend {
namespace {

// Messages of onnx.proto that a tensor may be in.
enum class Message { model, training, function, graph, node, attribute, sparse, tensor, entry };

struct Field {
    Message owner;
    std::uint64_t number;
    Message type;
};

constexpr std::array<Field, 20> fields{{
    {Message::model, 7, Message::graph},          {Message::model, 20, Message::training},
    {Message::model, 25, Message::function},      {Message::training, 1, Message::graph},
    {Message::training, 2, Message::graph},       {Message::function, 7, Message::node},
    {Message::function, 11, Message::attribute},  {Message::graph, 1, Message::node},
    {Message::graph, 5, Message::tensor},         {Message::graph, 15, Message::sparse},
    {Message::node, 5, Message::attribute},       {Message::attribute, 5, Message::tensor},
    {Message::attribute, 6, Message::graph},      {Message::attribute, 10, Message::tensor},
    {Message::attribute, 11, Message::graph},     {Message::attribute, 22, Message::sparse},
    {Message::attribute, 23, Message::sparse},    {Message::sparse, 1, Message::tensor},
    {Message::sparse, 2, Message::tensor},        {Message::tensor, 13, Message::entry},
}};
constexpr std::uint64_t key_field = 1;
constexpr std::uint64_t value_field = 2;

// Levels of messages in messages that the library's reader allows.
constexpr int deepest = 100;
// Longer paths exist on no system.
constexpr std::uint64_t longest_text = 1 << 16;

// A file of up to 2 GiB, of which only the parts between weights are read.
class File {
public:
    explicit File(const std::string& path) : stream_(path, std::ios::binary | std::ios::ate) {
        const std::streamoff size = stream_.tellg();
        if (stream_ && size > 0) size_ = static_cast<std::uint64_t>(size);
    }

    std::uint64_t size() const noexcept { return size_; }

    std::optional<std::uint8_t> byte(std::uint64_t offset) {
        if (offset < start_ || offset - start_ >= count_) read(offset);
        if (offset - start_ >= count_) return std::nullopt;
        return static_cast<std::uint8_t>(window_[offset - start_]);
    }

private:
    void read(std::uint64_t offset) {
        stream_.clear();
        stream_.seekg(static_cast<std::streamoff>(offset));
        stream_.read(window_.data(), static_cast<std::streamsize>(window_.size()));
        start_ = offset;
        count_ = static_cast<std::uint64_t>(stream_.gcount());
    }

    std::ifstream stream_;
    std::uint64_t size_ = 0;
    std::array<char, 4096> window_{};
    std::uint64_t start_ = 0;
    std::uint64_t count_ = 0;
};

// Reads the encoding of protobuf (protobuf.dev/programming-guides/encoding) as far as locations need it. What the
// library skips as unknown, such as groups, is searched too.
class Reader {
public:
    explicit Reader(File& file) : file_(file) {}

    // Returns whether the message was read to its end.
    bool read(Message message, std::uint64_t offset, std::uint64_t end, int depth) {
        if (depth > deepest) return false;
        std::string key;
        std::string value;
        while (offset < end) {
            const auto tag = varint(offset, end);
            if (!tag) return false;
            const auto size = size_of(*tag & 7, offset, end);
            if (!size || *size > end - offset) return false;
            const std::uint64_t number = *tag >> 3;
            if ((*tag & 7) == 2) {
                const Field* field = find(message, number);
                if (field != nullptr && !read(field->type, offset, offset + *size, depth + 1)) return false;
                if (message == Message::entry && number == key_field) key = text(offset, *size);
                if (message == Message::entry && number == value_field) value = text(offset, *size);
            }
            offset += *size;
        }
        if (key == "location" && std::ranges::find(locations, value) == locations.end()) locations.push_back(value);
        return true;
    }

    std::vector<std::string> locations;

private:
    static const Field* find(Message owner, std::uint64_t number) {
        const auto found = std::ranges::find_if(
            fields, [&](const Field& field) { return field.owner == owner && field.number == number; });
        return found == fields.end() ? nullptr : &*found;
    }

    std::optional<std::uint64_t> varint(std::uint64_t& offset, std::uint64_t end) {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64 && offset < end; shift += 7) {
            const auto byte = file_.byte(offset++);
            if (!byte) return std::nullopt;
            value |= static_cast<std::uint64_t>(*byte & 0x7F) << shift;
            if (*byte < 0x80) return value;
        }
        return std::nullopt;
    }

    // The size of a field's content, which `offset` is moved to.
    std::optional<std::uint64_t> size_of(std::uint64_t wire_type, std::uint64_t& offset, std::uint64_t end) {
        switch (wire_type) {
            case 0:
                return varint(offset, end) ? std::optional<std::uint64_t>(0) : std::nullopt;
            case 1:
                return 8;
            case 2:
                return varint(offset, end);
            case 3:
            case 4:
                return 0;
            case 5:
                return 4;
            default:
                return std::nullopt;
        }
    }

    std::string text(std::uint64_t offset, std::uint64_t size) {
        std::string text;
        for (std::uint64_t i = 0; i < std::min(size, longest_text); ++i) {
            text.push_back(static_cast<char>(file_.byte(offset + i).value_or(0)));
        }
        return text;
    }

    File& file_;
};

}  // namespace

std::vector<std::string> external_locations(const std::string& path) {
    File file(path);
    Reader reader(file);
    reader.read(Message::model, 0, file.size(), 0);
    return std::move(reader.locations);
}

}  // namespace onnx_backend
