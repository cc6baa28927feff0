// Fills in what a model's configuration lacks.
#pragma once

#include "ports.hpp"

namespace onnx_backend {

// Fills empty lists of inputs and outputs from the model. If both are empty, max_batch_size is 0 and every tensor has an
// open first dimension, that becomes the batch, of at most `default_batch`, with dynamic batching if requests would
// benefit. Returns whether anything changed. Throws backend_kit::Error for tensors that Triton does not support.
bool complete(backend_kit::ModelConfig& config, const Ports& ports, std::int64_t default_batch);

}  // namespace onnx_backend
