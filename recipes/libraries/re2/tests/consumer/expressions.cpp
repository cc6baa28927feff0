// Matches, captures, replacements and sets of expressions with the installed RE2. Exit code: how many checks failed.
#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

int failures = 0;

void check(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
  }
}

// The expression with which a server parses a URL.
void url() {
  const RE2 model(R"(/v2/models/([^/]+)(?:/versions/([0-9]+))?(?:/(infer|ready|config))?)");
  std::string name, version, kind;
  check(model.ok() && model.NumberOfCapturingGroups() == 3, "three groups");
  check(RE2::FullMatch("/v2/models/resnet/versions/3/infer", model, &name, &version, &kind), "the whole URL");
  check(name == "resnet" && version == "3" && kind == "infer", "the captures");
  check(RE2::FullMatch("/v2/models/resnet", model, &name, &version, &kind) && version.empty(), "optional parts");
  check(!RE2::FullMatch("/v2/models/a/b", model, &name, &version, &kind), "no match");
}

void unicode() {
  std::string word;
  check(RE2::PartialMatch("1 \u00c4\u00d6\u00dc\u00df 2", R"((\p{L}+))", &word), "letters");
  check(word == "\u00c4\u00d6\u00dc\u00df", "four letters of two bytes");
  check(RE2::FullMatch("\u6a21\u578b", R"(\p{Han}{2})"), "a script");
  check(RE2::FullMatch("\u0391\u03a3", "(?i)\u03b1\u03c2"), "case folding: both small sigmas match the capital one");
  check(RE2::FullMatch("\U0001f600", "."), "a code point of four bytes is one character");
  check(!RE2::FullMatch("\U0001f600", RE2(".", RE2::Latin1)), "and four in Latin-1");
}

void numbers() {
  int port = 0;
  double value = 0;
  check(RE2::FullMatch("port=8000", R"(\w+=(\d+))", &port) && port == 8000, "an integer");
  check(!RE2::FullMatch("99999999999", R"((\d+))", &port), "an integer that is too large");
  check(RE2::FullMatch("0x10", R"((.*))", RE2::Hex(&port)) && port == 16, "a hexadecimal number");
  check(RE2::FullMatch("-2.5e3", R"((.*))", &value) && value == -2500, "a double");
}

void replace() {
  std::string text = "a.b.c";
  check(RE2::GlobalReplace(&text, R"(\.)", "/") == 2 && text == "a/b/c", "all");
  check(RE2::Replace(&text, R"((\w)/(\w))", R"(\2-\1)") && text == "b-a/c", "swapped groups");
  check(RE2::QuoteMeta("a+b") == R"(a\+b)", "quoted");
}

void sets() {
  RE2::Set set(RE2::Options(), RE2::ANCHOR_BOTH);
  std::string error;
  check(set.Add(R"(nv_.*)", &error) == 0 && set.Add(R"(.*_total)", &error) == 1 && set.Add("(", &error) == -1, "added");
  std::vector<int> matched;
  check(set.Compile() && set.Match("nv_requests_total", &matched), "a set");
  std::sort(matched.begin(), matched.end());
  check(matched == std::vector<int>{0, 1}, "both expressions of the set");
}

// An expression that takes exponential time in other libraries, from several threads that share it.
void linear() {
  const RE2 nested("(a*)*b");
  const std::string text(50000, 'a');
  std::vector<std::thread> threads;
  std::vector<char> matched(4, 1);
  for (char &result : matched) {
    threads.emplace_back([&] { result = RE2::FullMatch(text, nested); });
  }
  for (auto &thread : threads) thread.join();
  check(std::count(matched.begin(), matched.end(), 0) == 4, "no match, and immediately");
}

void errors() {
  const RE2 open("(a", RE2::Quiet);
  check(!open.ok() && open.error_code() == RE2::ErrorMissingParen, "the kind of error");
  check(!RE2("a**{1001}", RE2::Quiet).ok(), "too many repeats");
}

}  // namespace

int main() {
  url();
  unicode();
  numbers();
  replace();
  sets();
  linear();
  errors();
  return failures;
}
