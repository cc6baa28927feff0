#include "backend_kit/json.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "backend_kit/error.hpp"

namespace backend_kit {
namespace {

constexpr std::size_t most_text = std::size_t{64} << 20;
constexpr int most_levels = 64;

bool is_digit(char character) noexcept { return character >= '0' && character <= '9'; }

// Appends a code point (never a surrogate) as UTF-8.
void append_utf8(std::string& text, std::uint32_t point) {
    const auto put = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
    if (point < 0x80) {
        put(point);
    } else if (point < 0x800) {
        put(0xC0 | (point >> 6));
        put(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        put(0xE0 | (point >> 12));
        put(0x80 | ((point >> 6) & 0x3F));
        put(0x80 | (point & 0x3F));
    } else {
        put(0xF0 | (point >> 18));
        put(0x80 | ((point >> 12) & 0x3F));
        put(0x80 | ((point >> 6) & 0x3F));
        put(0x80 | (point & 0x3F));
    }
}

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 when there is none (Unicode, table 3-7).
std::size_t utf8_length(std::string_view text) noexcept {
    const auto byte = [text](std::size_t index) { return static_cast<unsigned char>(text[index]); };
    const unsigned first = byte(0);
    if (first < 0x80) {
        return 1;
    }
    std::size_t length = 0;
    unsigned low = 0x80;
    unsigned high = 0xBF;
    if (first >= 0xC2 && first <= 0xDF) {
        length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3;
        low = first == 0xE0 ? 0xA0 : low;
        high = first == 0xED ? 0x9F : high;
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        low = first == 0xF0 ? 0x90 : low;
        high = first == 0xF4 ? 0x8F : high;
    }
    if (length == 0 || text.size() < length || byte(1) < low || byte(1) > high) {
        return 0;
    }
    for (std::size_t index = 2; index < length; ++index) {
        if (byte(index) < 0x80 || byte(index) > 0xBF) {
            return 0;
        }
    }
    return length;
}

class Parser {
public:
    explicit Parser(std::string_view text) : text_(text) {}

    Json document() {
        if (text_.size() > most_text) {
            throw invalid_argument("JSON of " + std::to_string(text_.size()) + " bytes is too long");
        }
        Json result = value(0);
        skip_space();
        if (at_ < text_.size()) {
            fail("text after the end of the document");
        }
        return result;
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw invalid_argument("JSON at byte " + std::to_string(at_) + ": " + what);
    }

    char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }

    void skip_space() noexcept {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
            ++at_;
        }
    }

    bool take(char character) noexcept {
        if (at_ < text_.size() && text_[at_] == character) {
            ++at_;
            return true;
        }
        return false;
    }

    bool take_word(std::string_view word) noexcept {
        if (text_.substr(at_).starts_with(word)) {
            at_ += word.size();
            return true;
        }
        return false;
    }

    Json value(int level) {
        skip_space();
        switch (peek()) {
            case '{':
                return object(level + 1);
            case '[':
                return array(level + 1);
            case '"':
                return Json(string());
            default:
                break;
        }
        if (is_digit(peek()) || peek() == '-') {
            return Json(number());
        }
        if (take_word("true")) {
            return Json(true);
        }
        if (take_word("false")) {
            return Json(false);
        }
        if (take_word("null")) {
            return {};
        }
        fail("a value is expected");
    }

    void check_level(int level) const {
        if (level > most_levels) {
            fail("more than " + std::to_string(most_levels) + " levels");
        }
    }

    Json array(int level) {
        check_level(level);
        JsonArray items;
        take('[');
        skip_space();
        if (take(']')) {
            return Json(std::move(items));
        }
        do {
            items.push_back(value(level));
            skip_space();
        } while (take(','));
        if (!take(']')) {
            fail("',' or ']' is expected");
        }
        return Json(std::move(items));
    }

    Json object(int level) {
        check_level(level);
        JsonObject members;
        take('{');
        skip_space();
        if (take('}')) {
            return Json(std::move(members));
        }
        do {
            skip_space();
            if (peek() != '"') {
                fail("a name in quotes is expected");
            }
            std::string name = string();
            skip_space();
            if (!take(':')) {
                fail("':' is expected");
            }
            members.emplace_back(std::move(name), value(level));
            skip_space();
        } while (take(','));
        if (!take('}')) {
            fail("',' or '}' is expected");
        }
        check_unique(members);
        return Json(std::move(members));
    }

    void check_unique(const JsonObject& members) const {
        std::vector<std::string_view> names;
        names.reserve(members.size());
        for (const auto& [name, value] : members) {
            names.emplace_back(name);
        }
        std::sort(names.begin(), names.end());
        const auto twice = std::adjacent_find(names.begin(), names.end());
        if (twice != names.end()) {
            fail("the object that ends here has the name '" + std::string(*twice) + "' twice");
        }
    }

    void digits() {
        if (!is_digit(peek())) {
            fail("a digit is expected");
        }
        while (is_digit(peek())) {
            ++at_;
        }
    }

    JsonNumber number() {
        const std::size_t start = at_;
        take('-');
        if (!take('0')) {
            digits();
        } else if (is_digit(peek())) {
            fail("a number has a leading zero");
        }
        if (take('.')) {
            digits();
        }
        if (take('e') || take('E')) {
            if (!take('+')) {
                take('-');
            }
            digits();
        }
        return {std::string(text_.substr(start, at_ - start))};
    }

    std::string string() {
        std::string result;
        take('"');
        while (true) {
            if (at_ >= text_.size()) {
                fail("the text ends inside a string");
            }
            const char character = text_[at_];
            if (character == '"') {
                ++at_;
                return result;
            }
            if (character == '\\') {
                ++at_;
                escape(result);
            } else if (static_cast<unsigned char>(character) < 0x20) {
                fail("a control character inside a string");
            } else {
                const std::size_t length = utf8_length(text_.substr(at_));
                if (length == 0) {
                    fail("bytes that are not UTF-8");
                }
                result.append(text_.substr(at_, length));
                at_ += length;
            }
        }
    }

    void escape(std::string& result) {
        constexpr std::string_view names = "\"\\/bfnrt";
        constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
        if (take('u')) {
            append_utf8(result, code_point());
            return;
        }
        const std::size_t found = at_ < text_.size() ? names.find(text_[at_]) : std::string_view::npos;
        if (found == std::string_view::npos) {
            fail("an unknown escape");
        }
        result += meanings[found];
        ++at_;
    }

    std::uint32_t code_point() {
        const std::uint32_t first = hexadecimal();
        if (first >= 0xDC00 && first <= 0xDFFF) {
            fail("half of a surrogate pair");
        }
        if (first < 0xD800 || first > 0xDBFF) {
            return first;
        }
        if (!take_word("\\u")) {
            fail("half of a surrogate pair");
        }
        const std::uint32_t second = hexadecimal();
        if (second < 0xDC00 || second > 0xDFFF) {
            fail("half of a surrogate pair");
        }
        return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    }

    std::uint32_t hexadecimal() {
        std::uint32_t result = 0;
        const std::string_view four = text_.substr(at_, 4);
        const auto [end, fault] = std::from_chars(four.data(), four.data() + four.size(), result, 16);
        if (four.size() < 4 || fault != std::errc() || end != four.data() + 4) {
            fail("four hexadecimal digits are expected");
        }
        at_ += 4;
        return result;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

void write_string(std::string_view value, std::string& text) {
    constexpr std::string_view hexadecimal = "0123456789abcdef";
    text += '"';
    for (const char character : value) {
        const auto byte = static_cast<unsigned char>(character);
        if (character == '"' || character == '\\') {
            text += '\\';
            text += character;
        } else if (byte < 0x20) {
            text += "\\u00";
            text += hexadecimal[byte >> 4];
            text += hexadecimal[byte & 0xF];
        } else {
            text += character;
        }
    }
    text += '"';
}

void write(const Json& value, std::string& text) {
    const char* separator = "";
    if (const bool* boolean = value.boolean()) {
        text += *boolean ? "true" : "false";
    } else if (const JsonNumber* number = value.number()) {
        text += number->text;
    } else if (const std::string* string = value.string()) {
        write_string(*string, text);
    } else if (const JsonArray* array = value.array()) {
        text += '[';
        for (const Json& item : *array) {
            text += separator;
            write(item, text);
            separator = ",";
        }
        text += ']';
    } else if (const JsonObject* object = value.object()) {
        text += '{';
        for (const auto& [name, member] : *object) {
            text += separator;
            write_string(name, text);
            text += ':';
            write(member, text);
            separator = ",";
        }
        text += '}';
    } else {
        text += "null";
    }
}

std::optional<std::int64_t> whole_number(std::string_view text) noexcept {
    std::int64_t result = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), result);
    if (fault != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return result;
}

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).document(); }

std::string Json::text() const {
    std::string result;
    write(*this, result);
    return result;
}

const Json* Json::find(std::string_view key) const noexcept {
    if (const JsonObject* members = object()) {
        for (const auto& [name, value] : *members) {
            if (name == key) {
                return &value;
            }
        }
    }
    return nullptr;
}

void Json::set(std::string_view key, Json value) {
    if (is_null()) {
        value_ = JsonObject{};
    }
    JsonObject* members = std::get_if<JsonObject>(&value_);
    if (members == nullptr) {
        throw internal_error("a member '" + std::string(key) + "' is set in a value that is not an object");
    }
    for (auto& [name, old] : *members) {
        if (name == key) {
            old = std::move(value);
            return;
        }
    }
    members->emplace_back(std::string(key), std::move(value));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
    if (value_->object() == nullptr) {
        throw invalid_argument(path_ + " is not an object");
    }
    const Json* member = value_->find(key);
    if (member == nullptr || member->is_null()) {
        return std::nullopt;
    }
    return JsonView(*member, path_ + "." + std::string(key));
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
    const JsonObject* object = value_->object();
    if (object == nullptr) {
        throw invalid_argument(path_ + " is not an object");
    }
    std::vector<std::pair<std::string, JsonView>> result;
    for (const auto& [name, value] : *object) {
        result.emplace_back(name, JsonView(value, path_ + "." + name));
    }
    return result;
}

std::vector<JsonView> JsonView::items() const {
    const JsonArray* array = value_->array();
    if (array == nullptr) {
        throw invalid_argument(path_ + " is not an array");
    }
    std::vector<JsonView> result;
    for (const Json& item : *array) {
        result.emplace_back(item, path_ + "[" + std::to_string(result.size()) + "]");
    }
    return result;
}

const std::string& JsonView::string() const {
    if (const std::string* result = value_->string()) {
        return *result;
    }
    throw invalid_argument(path_ + " is not a string");
}

std::int64_t JsonView::integer() const {
    const JsonNumber* number = value_->number();
    const std::string* string = value_->string();
    const std::string* text = number != nullptr ? &number->text : string;
    const std::optional<std::int64_t> result = text != nullptr ? whole_number(*text) : std::nullopt;
    if (!result) {
        throw invalid_argument(path_ + " is not a 64-bit integer");
    }
    return *result;
}

bool JsonView::boolean() const {
    if (const bool* result = value_->boolean()) {
        return *result;
    }
    throw invalid_argument(path_ + " is neither true nor false");
}

std::string JsonView::string_or(std::string_view key, std::string_view fallback) const {
    const auto member = find(key);
    return member ? member->string() : std::string(fallback);
}

std::int64_t JsonView::integer_or(std::string_view key, std::int64_t fallback) const {
    const auto member = find(key);
    return member ? member->integer() : fallback;
}

bool JsonView::boolean_or(std::string_view key, bool fallback) const {
    const auto member = find(key);
    return member ? member->boolean() : fallback;
}

}  // namespace backend_kit
