#include "testing.hpp"

#include <cstdio>
#include <utility>
#include <vector>

namespace testing {
namespace {

std::vector<std::pair<const char*, void (*)()>>& tests() {
    static std::vector<std::pair<const char*, void (*)()>> all;
    return all;
}

}  // namespace

Registration::Registration(const char* name, void (*body)()) { tests().emplace_back(name, body); }

void fail(const char* file, int line, const std::string& message) {
    throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + message);
}

std::string error_of(TRITONSERVER_Error_Code code, const std::function<void()>& function, const char* file, int line) {
    try {
        function();
    } catch (const backend_kit::Error& error) {
        check_equal(static_cast<int>(error.code()), static_cast<int>(code), error.what(), file, line);
        return error.what();
    }
    fail(file, line, "no error was thrown");
}

}  // namespace testing

int main() {
    std::size_t failed = 0;
    for (const auto& [name, body] : testing::tests()) {
        try {
            body();
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s failed: %s\n", name, error.what());
            ++failed;
        }
    }
    std::printf("%zu tests, %zu failed\n", testing::tests().size(), failed);
    return failed == 0 && !testing::tests().empty() ? 0 : 1;
}
