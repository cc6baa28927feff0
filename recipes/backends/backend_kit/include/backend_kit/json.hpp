// A strict reader and a writer for the JSON that the server hands over (RFC 8259): UTF-8, no duplicate keys, limits on
// size and depth. Numbers keep their text, so a document is written back as it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace backend_kit {

class Json;

struct JsonNumber {
    std::string text;
};

using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;

// One JSON value. Objects keep the order of their members.
class Json {
public:
    Json() = default;
    explicit Json(bool value) : value_(value) {}
    explicit Json(std::int64_t value) : value_(JsonNumber{std::to_string(value)}) {}
    explicit Json(JsonNumber value) : value_(std::move(value)) {}
    explicit Json(std::string value) : value_(std::move(value)) {}
    explicit Json(JsonArray value) : value_(std::move(value)) {}
    explicit Json(JsonObject value) : value_(std::move(value)) {}

    // Reads a whole document. Throws Error (invalid argument) with the position of the first error. Limits: 64 MiB of
    // text, 64 levels.
    static Json parse(std::string_view text);

    // The document as text, without spaces.
    std::string text() const;

    bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
    const bool* boolean() const noexcept { return std::get_if<bool>(&value_); }
    const JsonNumber* number() const noexcept { return std::get_if<JsonNumber>(&value_); }
    const std::string* string() const noexcept { return std::get_if<std::string>(&value_); }
    const JsonArray* array() const noexcept { return std::get_if<JsonArray>(&value_); }
    const JsonObject* object() const noexcept { return std::get_if<JsonObject>(&value_); }

    // The member of an object; null if it is absent or this is not an object.
    const Json* find(std::string_view key) const noexcept;

    // Sets a member of an object (a null value becomes an object first): replaces it in its place or appends it.
    void set(std::string_view key, Json value);

private:
    std::variant<std::monostate, bool, JsonNumber, std::string, JsonArray, JsonObject> value_;
};

// A value and the path to it from the root, such as "input[0].dims[1]", for exact errors.
class JsonView {
public:
    JsonView(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

    const Json& value() const noexcept { return *value_; }
    const std::string& path() const noexcept { return path_; }

    // The member, or nothing if it is absent or null. Throws Error if this is not an object.
    std::optional<JsonView> find(std::string_view key) const;
    // All members of an object, all items of an array. Throws Error when this is something else.
    std::vector<std::pair<std::string, JsonView>> members() const;
    std::vector<JsonView> items() const;

    // The value as a type. Throws Error if it has another type. A whole number may be written as a string, as in the
    // JSON form of protobuf for 64-bit fields.
    const std::string& string() const;
    std::int64_t integer() const;
    bool boolean() const;

    // The same for a member that may be absent.
    std::string string_or(std::string_view key, std::string_view fallback) const;
    std::int64_t integer_or(std::string_view key, std::int64_t fallback) const;
    bool boolean_or(std::string_view key, bool fallback) const;

private:
    const Json* value_;
    std::string path_;
};

}  // namespace backend_kit
