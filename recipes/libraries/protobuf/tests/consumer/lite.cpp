// The lite library alone: no descriptors, no reflection.
#include <string>

#include "lite.pb.h"

int main() {
  macbuild::test::Counter counter;
  counter.set_name("hits");
  for (const int count : {1, 300, -1}) {
    counter.add_counts(count);
  }
  macbuild::test::Counter again;
  if (!again.ParseFromString(counter.SerializeAsString()) || again.name() != "hits" || again.counts_size() != 3) {
    return 1;
  }
  if (again.counts(1) != 300 || again.counts(2) != -1 || again.GetTypeName() != "macbuild.test.Counter") {
    return 2;
  }
  return again.ParseFromString("\x0a\x7f") ? 3 : 0;
}
