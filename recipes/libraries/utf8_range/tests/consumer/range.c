/* The C interface: how many leading bytes are valid UTF-8. */
#include <string.h>

#include "utf8_range.h"

int main(void) {
  const char* good = "caf\xc3\xa9, and sixteen more bytes";
  const char* bad = "caf\xc3, cut in the middle of a character";
  if (!utf8_range_IsValid(good, strlen(good)) || utf8_range_IsValid(bad, strlen(bad))) {
    return 1;
  }
  return utf8_range_ValidPrefix(bad, strlen(bad)) == 3 ? 0 : 2;
}
