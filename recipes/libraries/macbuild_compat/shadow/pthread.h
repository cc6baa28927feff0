/* For foreign code on Darwin: binding a thread to processors, which Darwin has no call for (thread_policy_set's
 * affinity tag is a hint about caches, and refused on Apple silicon). Both functions fail, so a server that was told to
 * bind a model to processors says that it cannot, instead of running it elsewhere. errno is also set, because Triton's
 * SetNumaThreadAffinity reads it. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_PTHREAD_H
#define MACBUILD_SHADOW_PTHREAD_H

#include_next <pthread.h>
#ifdef __APPLE__
#include <errno.h>
#include <sched.h>

static inline int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t* set)
{
    (void)thread;
    (void)size;
    (void)set;
    return errno = ENOTSUP;
}

static inline int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t* set)
{
    (void)thread;
    (void)size;
    (void)set;
    return errno = ENOTSUP;
}

#endif
#endif
