// What a run of a TorchScript method leaves behind, read from its code.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <unordered_set>
#include <vector>

#include "signature.hpp"

namespace torch_backend {

// Pieces of memory, told apart by memory_of().
using Memories = std::unordered_set<const void*>;

struct Effects {
    bool keeps_state = false;  // a later run may see what a run has written
    std::vector<bool> owned;   // arguments that are written to, or may be kept: not to be the bytes of a request
    Memories read_only;        // of the tensors in the module, those that no run writes to
};

// The memory that a tensor is in; tensors that are views of the same have it in common.
const void* memory_of(const at::Tensor& tensor);

// Follows the code of a method and of all that it calls. What the code does not tell counts as written and kept.
Effects effects_of(const torch::jit::Module& module, const torch::jit::Method& method, const Signature& signature);

}  // namespace torch_backend
