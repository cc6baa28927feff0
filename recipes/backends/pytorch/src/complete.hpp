// Completion of a model configuration from data stored in the model file.
#pragma once

#include <cstdint>

#include "backend_kit/config.hpp"
#include "network.hpp"

namespace torch_backend {

// Fills empty lists of inputs and outputs, and max_batch_size if it is 0 and the model shows that it takes batches:
// from the configuration stored with the model, else from its example calls, else from the types of its arguments.
// `default_batch` is the batch size to assume, 0 for none. Returns whether anything changed. Throws
// backend_kit::Error (invalid argument) that lists what is missing if the model does not declare it.
bool complete(backend_kit::ModelConfig& config, Network& network, std::int64_t default_batch);

}  // namespace torch_backend
