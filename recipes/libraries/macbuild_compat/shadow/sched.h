/* For foreign code on Darwin: cpu_set_t and its macros (Linux: man 3 CPU_SET), which are plain sets of numbers and work
 * as such. Darwin cannot bind a thread to a processor; see shadow/pthread.h for the functions that take a set. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_SCHED_H
#define MACBUILD_SHADOW_SCHED_H

#include_next <sched.h>
#ifdef __APPLE__
#include <stddef.h>
#include <stdint.h>

#define CPU_SETSIZE 1024
typedef struct {
    uint64_t bits[CPU_SETSIZE / 64];
} cpu_set_t;

/* Numbers outside the set are ignored, as in glibc's macros. */
static inline void macbuild_compat_cpu_put(size_t cpu, cpu_set_t* set, int value)
{
    if (cpu < CPU_SETSIZE && value)
        set->bits[cpu / 64] |= UINT64_C(1) << cpu % 64;
    else if (cpu < CPU_SETSIZE)
        set->bits[cpu / 64] &= ~(UINT64_C(1) << cpu % 64);
}

static inline int macbuild_compat_cpu_has(size_t cpu, const cpu_set_t* set)
{
    return cpu < CPU_SETSIZE && (set->bits[cpu / 64] >> cpu % 64 & 1) != 0;
}

static inline int macbuild_compat_cpu_count(const cpu_set_t* set)
{
    int count = 0;
    for (size_t i = 0; i < CPU_SETSIZE / 64; ++i)
        count += __builtin_popcountll(set->bits[i]);
    return count;
}

#define CPU_ZERO(set) __builtin_memset((set), 0, sizeof(cpu_set_t))
#define CPU_SET(cpu, set) macbuild_compat_cpu_put((size_t)(cpu), (set), 1)
#define CPU_CLR(cpu, set) macbuild_compat_cpu_put((size_t)(cpu), (set), 0)
#define CPU_ISSET(cpu, set) macbuild_compat_cpu_has((size_t)(cpu), (set))
#define CPU_COUNT(set) macbuild_compat_cpu_count((set))
#endif

#endif
