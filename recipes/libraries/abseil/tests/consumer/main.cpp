// Uses Abseil as gRPC and protobuf do: strings, hash maps, statuses, logs, locks, time zones and random numbers.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/log/initialize.h"
#include "absl/log/log.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace {

int failures = 0;

void Check(bool good, const char* what) {
  if (!good) {
    ++failures;
    std::fprintf(stderr, "wrong: %s\n", what);
  }
}

void Strings() {
  const std::vector<std::string> parts = absl::StrSplit("a,b,,c", ',', absl::SkipEmpty());
  Check(absl::StrJoin(parts, "-") == "a-b-c", "StrSplit, StrJoin");
  Check(absl::StrCat("x", 42, 1.5) == "x421.5", "StrCat");
  Check(absl::StrFormat("%05d|%-4s|%.2f", 42, "ab", 2.71828) == "00042|ab  |2.72", "StrFormat");
  double number = 0;
  Check(absl::SimpleAtod("6.02214076e23", &number) && number == 6.02214076e23, "SimpleAtod");
  absl::Cord cord(std::string(5000, 'x'));
  cord.Append("end");
  Check(cord.size() == 5003 && cord.EndsWith("end"), "Cord");
}

void Maps() {
  absl::flat_hash_map<std::string, int> map;
  for (int i = 0; i < 10000; ++i) {
    map[absl::StrCat("key", i)] = i;
  }
  long sum = 0;
  for (const auto& [key, value] : map) {
    sum += value;
  }
  Check(sum == 49995000 && map.at("key77") == 77 && !map.contains("key10000"), "flat_hash_map");
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(value, " is odd"));
  }
  return value / 2;
}

void Statuses() {
  Check(Half(8).value() == 4, "StatusOr");
  Check(Half(7).status().ToString() == "INVALID_ARGUMENT: 7 is odd", "Status");
}

class Sink : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& entry) override { text = std::string(entry.text_message()); }
  std::string text;
};

void Logs() {
  absl::InitializeLog();
  Sink sink;
  absl::AddLogSink(&sink);
  LOG(WARNING) << "number " << 7;
  absl::RemoveLogSink(&sink);
  Check(sink.text == "number 7", "LOG");
}

void Locks() {
  absl::Mutex mutex;
  int waiting = 3;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      absl::MutexLock lock(&mutex);
      --waiting;
    });
  }
  mutex.LockWhen(absl::Condition(+[](int* count) { return *count == 0; }, &waiting));
  Check(!mutex.AwaitWithTimeout(absl::Condition(+[](int* count) { return *count > 0; }, &waiting),
                                absl::Milliseconds(20)),
        "Mutex: timeout");
  mutex.Unlock();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void Times() {
  const absl::Time time = absl::FromUnixSeconds(1750000000);
  Check(absl::FormatTime(time, absl::UTCTimeZone()) == "2025-06-15T15:06:40+00:00", "FormatTime");
  absl::Time parsed;
  std::string error;
  Check(absl::ParseTime(absl::RFC3339_full, "2025-06-15T17:06:40+02:00", &parsed, &error) && parsed == time,
        "ParseTime");
  Check(absl::FormatDuration(absl::Hours(1) + absl::Milliseconds(1500)) == "1h1.5s", "FormatDuration");
  const std::string local = absl::LocalTimeZone().name();
  std::printf("local time zone: %s\n", local.c_str());
  Check(!local.empty(), "LocalTimeZone");
}

void Numbers() {
  absl::BitGen generator;
  bool differ = false;
  const int first = absl::Uniform(generator, 0, 1000000);
  for (int i = 0; i < 100; ++i) {
    const int value = absl::Uniform(generator, 0, 1000000);
    Check(value >= 0 && value < 1000000, "Uniform: range");
    differ = differ || value != first;
  }
  Check(differ, "Uniform: values");
}

}  // namespace

int main() {
  Strings();
  Maps();
  Statuses();
  Logs();
  Locks();
  Times();
  Numbers();
  return failures == 0 ? 0 : 1;
}
