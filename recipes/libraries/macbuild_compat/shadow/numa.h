/* For foreign code on Darwin, instead of libnuma's header (man 3 numa): one memory node and no policy for it. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_NUMA_H
#define MACBUILD_SHADOW_NUMA_H

/* -1 is libnuma's way of saying that it cannot be used. */
static inline int numa_available(void) { return -1; }

/* The highest node number: node 0 is the only one. */
static inline int numa_max_node(void) { return 0; }

#endif
