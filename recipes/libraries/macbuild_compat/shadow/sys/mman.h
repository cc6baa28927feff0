/* For foreign code: shm_open, shm_unlink, mmap and munmap become the functions of macbuild/compat/posix.h at link time.
 * The names in the source stay, so members, pointers to functions and `::mmap` work as before.
 *
 * An assembler label has to come with the first declaration. Apple's header gives mmap, munmap and mprotect labels of
 * its own through __DARWIN_ALIAS (sys/cdefs.h), so that macro is replaced while the header is read; a new function
 * with that macro in a later SDK causes a compile error that names it. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_SYS_MMAN_H
#define MACBUILD_SHADOW_SYS_MMAN_H

#include <sys/types.h>

#include "macbuild/compat/forced.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __APPLE__
int shm_open(const char*, int, ...) MACBUILD_COMPAT_LABEL("macbuild_compat_shm_open");
#else
int shm_open(const char*, int, mode_t) MACBUILD_COMPAT_LABEL("macbuild_compat_shm_open");
#endif
int shm_unlink(const char*) MACBUILD_COMPAT_LABEL("macbuild_compat_shm_unlink");
void* mmap(void*, size_t, int, int, int, off_t) MACBUILD_COMPAT_NOEXCEPT MACBUILD_COMPAT_LABEL("macbuild_compat_mmap");
int munmap(void*, size_t) MACBUILD_COMPAT_NOEXCEPT MACBUILD_COMPAT_LABEL("macbuild_compat_munmap");
#ifdef __cplusplus
}
#endif

#ifdef __APPLE__
#include <sys/cdefs.h>
#define MACBUILD_LABEL_mmap MACBUILD_COMPAT_LABEL("macbuild_compat_mmap")
#define MACBUILD_LABEL_munmap MACBUILD_COMPAT_LABEL("macbuild_compat_munmap")
#define MACBUILD_LABEL_mprotect MACBUILD_COMPAT_LABEL("mprotect")
#pragma push_macro("__DARWIN_ALIAS")
#undef __DARWIN_ALIAS
#define __DARWIN_ALIAS(name) MACBUILD_LABEL_##name
#endif
#include_next <sys/mman.h>
#ifdef __APPLE__
#pragma pop_macro("__DARWIN_ALIAS")
#endif

#endif
