// What the tests are made of: CHECK ends the program at the first thing that is not so; a program may start itself as a
// child with another part to play, and look at its end.
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
    int output = -1;  // what it writes to stdout and stderr
};

// Starts this program with arguments.
Child start(const std::vector<std::string>& arguments);

// One line of what a child writes, without its end; what there is at the end of all.
std::string line_of(const Child& child);

struct End {
    int status = 0;  // as waitpid(2) has it
    std::string output;
};

End wait_for(const Child& child);

}  // namespace check
