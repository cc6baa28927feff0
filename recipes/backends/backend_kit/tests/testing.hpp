// A test runner: TEST defines a test, CHECK and the other macros end it at the first failure.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "backend_kit/error.hpp"

namespace testing {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Registration {
    Registration(const char* name, void (*body)());
};

[[noreturn]] void fail(const char* file, int line, const std::string& message);

template <typename Left, typename Right>
void check_equal(const Left& left, const Right& right, const char* text, const char* file, int line) {
    if (!(left == right)) {
        std::ostringstream message;
        message << text << ": " << left << " is not " << right;
        fail(file, line, message.str());
    }
}

// The message of the Error that the function throws; fails the test if it throws none or one with another code.
std::string error_of(TRITONSERVER_Error_Code code, const std::function<void()>& function, const char* file, int line);

// Reproducible numbers for tests that try many inputs (xorshift64).
class Random {
public:
    explicit Random(unsigned long long seed) : state_(seed) {}
    std::size_t below(std::size_t limit) {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return static_cast<std::size_t>(state_ % limit);
    }

private:
    unsigned long long state_;
};

}  // namespace testing

#define TEST(name)                                            \
    static void name();                                       \
    static const testing::Registration name##_(#name, &name); \
    static void name()

#define CHECK(condition)                                   \
    do {                                                   \
        if (!(condition)) {                                \
            testing::fail(__FILE__, __LINE__, #condition); \
        }                                                  \
    } while (false)

#define CHECK_EQUAL(left, right) testing::check_equal((left), (right), #left, __FILE__, __LINE__)

#define CHECK_ERROR(code, message, expression) \
    CHECK_EQUAL(                               \
        testing::error_of(code, [&] { static_cast<void>(expression); }, __FILE__, __LINE__), std::string(message))

#define CHECK_INVALID(message, expression) CHECK_ERROR(TRITONSERVER_ERROR_INVALID_ARG, message, expression)
