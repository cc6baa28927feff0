// Synthetic upstream: names as facts.
#ifndef TRITONCACHE_H_
#define TRITONCACHE_H_

#include "triton/core/tritonserver.h"

#define TRITONCACHE_API_VERSION_MAJOR 1

#endif
