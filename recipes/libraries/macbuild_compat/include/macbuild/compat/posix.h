/* Replacements for calls of foreign code on Darwin: the headers in recipes/libraries/macbuild_compat/shadow give these
 * names to the linker, the source keeps its own. Plain C, so that C sources can use them too. Each behaves like the
 * function of Linux that it is named after and sets errno, except where a comment says otherwise. */
#ifndef MACBUILD_COMPAT_POSIX_H
#define MACBUILD_COMPAT_POSIX_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keys of any length, by the registry of the user (shm_registry.hpp). */
int macbuild_compat_shm_open(const char* key, int flags, ...);
int macbuild_compat_shm_unlink(const char* key);

/* A region has one size for its life on Darwin. Setting a size that it already has room for succeeds and changes
 * nothing; growing it fails with EINVAL, as in the kernel. Files behave as usual. */
int macbuild_compat_ftruncate(int descriptor, off_t size);

/* Accepts offsets in multiples of 4096, whatever the page size; the result points to the requested byte. */
void* macbuild_compat_mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset);
/* A mapping whose offset was not a multiple of the page can only be unmapped as a whole; otherwise EINVAL. */
int macbuild_compat_munmap(void* address, size_t length);

/* A number for the calling thread that no process has: 2^30 and above. */
long macbuild_compat_gettid(void);
/* syscall(SYS_gettid) returns it; any other number fails with ENOSYS. */
long macbuild_compat_syscall(long number, ...);

/* With PRIO_PROCESS and the number of the calling thread: sets the class of this thread (thread.hpp); with the number
 * of another thread: ESRCH. Anything else is passed to the system. */
int macbuild_compat_setpriority(int which, id_t who, int value);

/* Replaces fork() followed by execvp() in the child: starts the program with the descriptors, signal mask, ignored
 * signals, working folder and environment of this process, and returns its number; wait for it with waitpid(). If the
 * program cannot be started, it returns -1 with errno, where a forked child would have ended by itself. */
pid_t macbuild_compat_spawnp(const char* program, char* const arguments[]);

#ifdef __cplusplus
}
#endif

#endif
