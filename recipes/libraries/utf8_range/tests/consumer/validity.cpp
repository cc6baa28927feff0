// Valid and invalid UTF-8 of each kind (RFC 3629), at each distance from the start, since 16 bytes are checked at a
// time.
#include <cstdio>
#include <string>

#include "utf8_validity.h"

int main() {
  const std::string good[] = {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                              "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
  // A continuation byte alone, overlong forms, a surrogate, above U+10FFFF, cut forms, bytes that never occur.
  const std::string bad[] = {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                             "\xf4\x90\x80\x80", "\xc2", "\xe0\xa0", "\xf0\x90\x80", "\xf5\x80\x80\x80", "\xff"};
  int failures = 0;
  for (std::size_t before = 0; before < 64; ++before) {
    const std::string start(before, 'x');
    for (const std::string& text : good) {
      failures += !utf8_range::IsStructurallyValid(start + text + "end");
    }
    for (const std::string& text : bad) {
      failures += utf8_range::IsStructurallyValid(start + text + "end");
      failures += utf8_range::SpanStructurallyValid(start + text + "end") != before;
    }
  }
  if (failures != 0) {
    std::fprintf(stderr, "%d wrong answers\n", failures);
  }
  return failures == 0 ? 0 : 1;
}
