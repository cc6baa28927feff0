/* Included first in forced builds on this machine: Boost.Interprocess then keeps regions as files and waits with
atomics, as it does on Darwin, whose unistd.h has this value. */
#ifndef MACBUILD_AS_DARWIN_H
#define MACBUILD_AS_DARWIN_H
#include <unistd.h>
#define BOOST_INTERPROCESS_FORCE_GENERIC_EMULATION
#undef _POSIX_SHARED_MEMORY_OBJECTS
#define _POSIX_SHARED_MEMORY_OBJECTS -1
#endif
