// Comparison of what a TorchScript model gives with its configuration, before there is any data.
#pragma once

#include <span>
#include <vector>

#include "signature.hpp"
#include "values.hpp"

namespace torch_backend {

// The shape of a configured tensor with the batch, if there is one; open sizes, and the batch, are `open`.
std::vector<std::int64_t> shape_of(const Port& port, bool batched, std::int64_t open);

// Two runs on tensors that have types and sizes but no memory, with different numbers for what is open. What both give
// alike is known of every run.
struct Trials {
    std::vector<Value> few;
    std::vector<Value> many;
    bool batched = false;
    bool sizes_count = false;  // the configuration has the sizes of all inputs

    // Throws backend_kit::Error (invalid argument) if an output has another type than in the configuration or, where
    // sizes count, another shape. Says nothing of values that are no tensors.
    void check(std::span<const Pick> picks, std::span<const Port> outputs) const;
};

}  // namespace torch_backend
