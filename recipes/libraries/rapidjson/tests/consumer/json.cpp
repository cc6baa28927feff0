// Reads, changes and writes JSON as Triton's JSON wrapper does: in place, by pointer, 64-bit numbers, errors.
#include <rapidjson/document.h>
#include <rapidjson/error/en.h>
#include <rapidjson/pointer.h>
#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace {

int failures = 0;

void check(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "wrong: %s\n", what);
    ++failures;
  }
}

template <template <typename, typename, typename, typename, unsigned> class Writer>
std::string write(const rapidjson::Value& value) {
  rapidjson::StringBuffer buffer;
  Writer<rapidjson::StringBuffer, rapidjson::UTF8<>, rapidjson::UTF8<>, rapidjson::CrtAllocator,
         rapidjson::kWriteDefaultFlags>
      writer(buffer);
  value.Accept(writer);
  return {buffer.GetString(), buffer.GetSize()};
}

void reads_and_writes() {
  constexpr std::string_view text =
      R"({"name":"identity","inputs":[{"shape":[1,-1],"data":[1.5,2e3,-0.0]}],"big":18446744073709551615,)"
      R"("small":-9223372036854775808,"text":"\u00e9\ud83d\ude00\n","none":null,"yes":true})";
  rapidjson::Document document;
  document.Parse(text.data(), text.size());
  check(!document.HasParseError(), "a valid document");
  check(document["big"].GetUint64() == std::numeric_limits<std::uint64_t>::max(), "uint64");
  check(document["small"].GetInt64() == std::numeric_limits<std::int64_t>::min(), "int64");
  check(!document["big"].IsInt64(), "2^64-1 is not an int64");
  check(document["inputs"][0]["data"][1].GetDouble() == 2000.0, "double");
  check(std::string_view(document["text"].GetString()) == "\xc3\xa9\xf0\x9f\x98\x80\n", "escapes become UTF-8");

  // Assignment and moves of values, where the release of 2016 is not valid C++20.
  auto& allocator = document.GetAllocator();
  rapidjson::Value list(rapidjson::kArrayType);
  list.PushBack(rapidjson::Value("a", allocator).Move(), allocator).PushBack(rapidjson::StringRef("b"), allocator);
  rapidjson::Value moved(std::move(list));
  document["none"] = moved;
  document["yes"] = rapidjson::StringRef("no");
  document.EraseMember("inputs");
  check(write<rapidjson::Writer>(document) ==
            "{\"name\":\"identity\",\"big\":18446744073709551615,\"small\":-9223372036854775808,"
            "\"text\":\"\xc3\xa9\xf0\x9f\x98\x80\\n\",\"none\":[\"a\",\"b\"],\"yes\":\"no\"}",
        "compact output");
  check(write<rapidjson::PrettyWriter>(document["none"]) == "[\n    \"a\",\n    \"b\"\n]", "pretty output");
}

void goes_by_pointer() {
  rapidjson::Document document;
  rapidjson::Pointer("/parameters/list/1/key").Set(document, 7);
  check(write<rapidjson::Writer>(document) == R"({"parameters":{"list":[null,{"key":7}]}})", "a pointer creates");
  const auto* value = rapidjson::Pointer("/parameters/list/1/key").Get(document);
  check(value != nullptr && value->GetInt() == 7, "a pointer finds");
  check(rapidjson::Pointer("/parameters/none").Get(document) == nullptr, "a pointer does not find");
  check(!rapidjson::Pointer("no slash").IsValid(), "an invalid pointer");
}

void parses_in_place_and_reports_errors() {
  std::string text = R"( {"a" : [1, 2, {"b" : "c"}]} )";
  rapidjson::Document document;
  document.ParseInsitu(text.data());
  check(!document.HasParseError() && document["a"][2]["b"] == "c", "in place");

  rapidjson::Document bad;
  bad.Parse(R"({"a": [1, }])");
  check(bad.GetParseError() == rapidjson::kParseErrorValueInvalid && bad.GetErrorOffset() == 10, "place of an error");
  check(std::string_view(rapidjson::GetParseError_En(bad.GetParseError())) == "Invalid value.", "text of an error");

  const std::string deep(100000, '[');
  rapidjson::Document nested;
  nested.Parse<rapidjson::kParseIterativeFlag>(deep.data(), deep.size());
  check(nested.HasParseError(), "deep nesting");
}

}  // namespace

int main() {
  reads_and_writes();
  goes_by_pointer();
  parses_in_place_and_reports_errors();
  return failures == 0 ? 0 : 1;
}
