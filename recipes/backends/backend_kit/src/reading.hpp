// How fields of a model configuration are read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend_kit/config.hpp"

namespace backend_kit {

// Throws Error (invalid argument) for a dimension below -1.
std::vector<std::int64_t> read_dims(const JsonView& view);

// TRITONSERVER_TYPE_INVALID for a type that is left open. Throws Error (invalid argument) for an unknown name.
DataType read_datatype(const JsonView& view);

// The first of a name, or null.
const TensorConfig* find_tensor(const std::vector<TensorConfig>& tensors, std::string_view name) noexcept;

}  // namespace backend_kit
