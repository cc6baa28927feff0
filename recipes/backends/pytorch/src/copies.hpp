// Copies of a module for the instances of a model.
#pragma once

#include <ATen/core/ivalue.h>

#include "effects.hpp"

namespace torch_backend {

// A copy of all that a module holds, except that tensors in `shared` memory are not copied. Tensors that are views of
// the same memory are so in the copy, too. Throws c10::Error for an object that cannot be copied.
c10::IValue copy_of(const c10::IValue& module, const Memories& shared);

}  // namespace torch_backend
