/* For foreign code on Darwin, instead of libnuma's header (man 2 set_mempolicy, get_mempolicy). The only policy is the
 * default one. Requesting it succeeds; requesting another fails with ENOSYS, as on a Linux kernel without NUMA, so that
 * a server that was told to bind a model to a node says that it cannot. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_NUMAIF_H
#define MACBUILD_SHADOW_NUMAIF_H

#include <errno.h>

enum { MPOL_DEFAULT = 0, MPOL_PREFERRED = 1, MPOL_BIND = 2, MPOL_INTERLEAVE = 3, MPOL_LOCAL = 4 };

static inline long set_mempolicy(int mode, const unsigned long* nodes, unsigned long count)
{
    (void)nodes;
    (void)count;
    if (mode == MPOL_DEFAULT)
        return 0;
    errno = ENOSYS;
    return -1;
}

/* `count` nodes take whole words of `nodes`; none is set under the default policy. */
static inline long get_mempolicy(int* mode, unsigned long* nodes, unsigned long count, void* address, unsigned long flags)
{
    const unsigned long bits = 8 * sizeof(unsigned long);
    (void)address;
    if (flags != 0) {
        errno = ENOSYS;
        return -1;
    }
    if (mode)
        *mode = MPOL_DEFAULT;
    for (unsigned long i = 0; nodes && i < (count + bits - 1) / bits; ++i)
        nodes[i] = 0;
    return 0;
}

#endif
