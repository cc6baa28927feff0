// Uses libb64 as Triton does, to decode the handles of shared memory, and through its C++ classes.
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include <b64/cdecode.h>
#include <b64/cencode.h>
}
#include <b64/decode.h>
#include <b64/encode.h>

namespace {

int failures = 0;

void Check(bool good, const char* what) {
  if (!good) {
    ++failures;
    std::fprintf(stderr, "wrong: %s\n", what);
  }
}

std::string Encode(const std::string& plain) {
  std::vector<char> code(2 * plain.size() + 8);
  base64_encodestate state;
  base64_init_encodestate(&state);
  int length = base64_encode_block(plain.data(), static_cast<int>(plain.size()), code.data(), &state);
  length += base64_encode_blockend(code.data() + length, &state);
  return {code.data(), static_cast<size_t>(length)};
}

// In pieces of that many characters.
std::string Decode(const std::string& code, size_t piece) {
  std::string plain;
  std::vector<char> buffer(piece + 1);
  base64_decodestate state;
  base64_init_decodestate(&state);
  for (size_t at = 0; at < code.size(); at += piece) {
    const std::string part = code.substr(at, piece);
    plain.append(buffer.data(),
                 base64_decode_block(part.data(), static_cast<int>(part.size()), buffer.data(), &state));
  }
  return plain;
}

std::string Bytes(size_t length) {
  std::string bytes;
  for (size_t index = 0; index < length; ++index) {
    bytes += static_cast<char>(index * 7 + length);
  }
  return bytes;
}

}  // namespace

int main() {
  // RFC 4648, section 10. The encoder ends its text with a newline.
  const char* const known[][2] = {{"", "\n"},           {"f", "Zg==\n"},         {"fo", "Zm8=\n"},
                                  {"foo", "Zm9v\n"},    {"foob", "Zm9vYg==\n"},  {"fooba", "Zm9vYmE=\n"},
                                  {"foobar", "Zm9vYmFy\n"}, {"\xfb\xff\xfe", "+//+\n"}};
  for (const auto& [plain, code] : known) {
    Check(Encode(plain) == code, "a known text in base64");
    Check(Decode(code, 100) == plain, "a known text out of base64");
  }
  for (size_t length = 0; length < 300; ++length) {
    const std::string code = Encode(Bytes(length));
    Check(Decode(code, code.size() + 1) == Bytes(length), "bytes come back");
    Check(Decode(code, 5) == Bytes(length), "bytes come back in pieces");
  }
  for (int character = 0; character < 256; ++character) {
    const bool digit = (character >= '0' && character <= '9') || (character >= 'A' && character <= 'Z') ||
                       (character >= 'a' && character <= 'z') || character == '+' || character == '/';
    const int value = base64_decode_value(static_cast<char>(character));
    Check(digit ? value >= 0 && value < 64 : value < 0, "which characters are base64");
  }

  std::istringstream plain(Bytes(10000));
  std::stringstream code;
  std::ostringstream back;
  base64::encoder(64).encode(plain, code);
  base64::decoder().decode(code, back);
  Check(back.str() == Bytes(10000), "bytes come back through streams");
  return failures != 0;
}
