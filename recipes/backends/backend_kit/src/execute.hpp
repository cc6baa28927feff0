// The execution of the requests that Triton hands over in one call.
#pragma once

#include <span>

#include "backend_kit/backend.hpp"

namespace backend_kit {

// Answers and releases each request exactly once. Throws Error only before any request is accepted, while Triton still
// owns them all.
void execute(const ModelConfig& config, Instance& instance, TRITONBACKEND_ModelInstance* handle,
             std::span<TRITONBACKEND_Request* const> requests);

}  // namespace backend_kit
