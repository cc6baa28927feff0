/* Foreign code on Darwin, instead of libnuma's header (man 3 numa): there is one node of memory and no policy for it. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_NUMA_H
#define MACBUILD_SHADOW_NUMA_H

/* -1 is libnuma's way to say that nothing else of it can be used. */
static inline int numa_available(void) { return -1; }

/* The highest number of a node: node 0 is the only one. */
static inline int numa_max_node(void) { return 0; }

#endif
