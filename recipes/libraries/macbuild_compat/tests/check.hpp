// Helpers for the tests: CHECK ends the program at the first failure; a program may start itself as a child with
// another role, and check how it ends.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);          \
            std::exit(1);                                                                         \
        }                                                                                         \
    } while (false)

#define CHECK_EQUAL(left, right)                                                                   \
    do {                                                                                           \
        if (!((left) == (right))) {                                                                \
            std::fprintf(stderr, "%s:%d: not equal: %s, %s\n", __FILE__, __LINE__, #left, #right); \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (false)

namespace check {

struct Child {
    int process = 0;
    int output = -1;  // its stdout and stderr
};

// Starts this program with arguments.
Child start(const std::vector<std::string>& arguments);

// One line of a child's output, without its end; all of the rest at the end.
std::string line_of(const Child& child);

struct End {
    int status = 0;  // as waitpid(2) has it
    std::string output;
};

End wait_for(const Child& child);

}  // namespace check
