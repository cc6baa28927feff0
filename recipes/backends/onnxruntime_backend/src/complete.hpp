// Fills in what a model's configuration lacks.
#pragma once

#include "ports.hpp"

namespace onnx_backend {

// Fills empty lists of inputs and outputs from the model. If both are empty, max_batch_size is 0 and every tensor has an
// open first dimension, that becomes the batch, of `default_batch` at most, with dynamic batching where requests would
// gain by it. Returns whether anything changed. Throws backend_kit::Error for what Triton cannot carry.
bool complete(backend_kit::ModelConfig& config, const Ports& ports, std::int64_t default_batch);

}  // namespace onnx_backend
