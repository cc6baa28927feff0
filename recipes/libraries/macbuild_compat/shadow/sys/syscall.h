/* For foreign code on Darwin: syscall(SYS_gettid) returns a number of the calling thread that setpriority() of
 * shadow/sys/resource.h knows. Apple's SYS_gettid is another call, and syscall() is deprecated there, which -Werror
 * makes an error; hence a macro and not a label. Any other call number fails with ENOSYS. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_SYS_SYSCALL_H
#define MACBUILD_SHADOW_SYS_SYSCALL_H

#if __has_include_next(<sys/syscall.h>)
#include_next <sys/syscall.h>
#endif
#ifdef __APPLE__
#include <unistd.h>

#include "macbuild/compat/posix.h"

#undef SYS_gettid
#define SYS_gettid 0x6d620001L /* kSysGettid of macbuild/compat/thread.hpp */
#define syscall(...) macbuild_compat_syscall(__VA_ARGS__)
#endif

#endif
