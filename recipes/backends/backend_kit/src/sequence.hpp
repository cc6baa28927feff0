// Sequence batching in a model configuration.
#pragma once

#include "backend_kit/config.hpp"

namespace backend_kit {

// Reads the object `sequence_batching`. Throws Error (invalid argument).
SequenceBatching read_sequence_batching(const JsonView& view, bool batching);

// Fills all_inputs and all_outputs.
void list_all_tensors(ModelConfig& config);

// Refuses what batches cannot serve or the server would get wrong. Throws Error (unsupported or invalid argument).
void check_sequence_batching(const ModelConfig& config);

// Refuses a completed configuration with sequences and no outputs: its requests could not be told from those that fill
// empty slots, which ask for none. Throws Error (invalid argument).
void check_sequence_outputs(const ModelConfig& config);

}  // namespace backend_kit
