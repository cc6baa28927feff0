// The smaller headers that Triton includes, none of which may need a compiled library of Boost.
#define BOOST_STACKTRACE_USE_NOOP
#include <boost/algorithm/string.hpp>
#include <boost/core/span.hpp>
#include <boost/stacktrace.hpp>
#include <boost/thread/thread_time.hpp>
#include <boost/unordered_map.hpp>
#include <boost/version.hpp>

#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace {

int failures = 0;

void check(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "wrong: %s\n", what);
    ++failures;
  }
}

long total(boost::span<const int> values) { return std::accumulate(values.begin(), values.end(), 0L); }

}  // namespace

int main() {
  static_assert(BOOST_VERSION >= 108100);
  const std::vector<int> list{1, 2, 3};
  constexpr std::array<int, 2> pair{4, 5};
  check(total(list) == 6 && total(pair) == 9 && total(boost::span(list).subspan(1)) == 5, "span");

  boost::unordered_map<std::string, int> counts;
  std::vector<std::string> words;
  const std::string text = " one,two,one ";
  boost::split(words, boost::trim_copy(text), boost::is_any_of(","));
  for (const auto& word : words) {
    ++counts[boost::to_upper_copy(word)];
  }
  check(counts.size() == 2 && counts.at("ONE") == 2, "split and count");

  check(boost::stacktrace::stacktrace().empty(), "a trace that is switched off is empty");

  const boost::system_time now = boost::get_system_time();
  check(now + boost::posix_time::milliseconds(1500) - now == boost::posix_time::milliseconds(1500), "times");
  check(now.date().year() >= 2024, "the year");
  return failures == 0 ? 0 : 1;
}
