// Synthetic upstream: names as facts.
#ifndef TRITONREPOAGENT_H_
#define TRITONREPOAGENT_H_

#include "triton/core/tritonserver.h"

#define TRITONREPOAGENT_API_VERSION_MAJOR 1

#endif
