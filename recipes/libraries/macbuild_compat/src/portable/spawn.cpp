#include <spawn.h>

#include <cerrno>

#include "macbuild/compat/posix.h"
#include "macbuild/compat/process.hpp"

extern "C" pid_t macbuild_compat_spawnp(const char* program, char* const arguments[])
{
    // No file actions and no attributes: the child inherits the same as through fork() and exec(). Nothing of this
    // process runs in the child, where only async-signal-safe functions would be allowed.
    pid_t child = -1;
    const int error = posix_spawnp(&child, program, nullptr, nullptr, arguments, macbuild::compat::environment());
    if (error == 0)
        return child;
    errno = error;
    return -1;
}
