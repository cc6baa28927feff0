// The constructor that the linker includes makes a broken connection an error before main.
#include <signal.h>

#include "check.hpp"

int main() { CHECK(signal(SIGPIPE, SIG_DFL) == SIG_IGN); }
