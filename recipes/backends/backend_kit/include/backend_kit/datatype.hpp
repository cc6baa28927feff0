// Triton's data types: names, names in a model configuration, sizes; and sizes of shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend_kit/triton.h"

namespace backend_kit {

using DataType = TRITONSERVER_DataType;
using Shape = std::span<const std::int64_t>;

// "FP32", "BYTES", ...; "INVALID" for any other value.
std::string_view datatype_name(DataType datatype) noexcept;

// "TYPE_FP32", "TYPE_STRING" (for BYTES), ...; "TYPE_INVALID" for any other value.
std::string_view config_type_name(DataType datatype) noexcept;

// The data type of a name in a model configuration. Throws Error (invalid argument) for any other text.
DataType datatype_of_config(std::string_view name);

// Bytes of one element; 0 for BYTES, whose elements have no fixed size, and for any other value.
std::size_t datatype_size(DataType datatype) noexcept;

// Number of elements. Throws Error when a dimension is negative or the product does not fit in 63 bits.
std::size_t element_count(Shape shape);

// Number of bytes of a tensor of a type with fixed size. Throws Error as element_count does, and for BYTES.
std::size_t tensor_size(DataType datatype, Shape shape);

// "[2,3,-1]", as Triton writes shapes.
std::string shape_text(Shape shape);

}  // namespace backend_kit
