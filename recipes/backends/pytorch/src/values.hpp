// Conversion between the bytes of requests and the values of LibTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "network.hpp"

namespace torch_backend {

// One value that a model returned, with its name in the structure around it.
struct Value {
    std::string name;
    c10::IValue content;
};

// Throws backend_kit::Error (unsupported) if this LibTorch lacks the type.
at::ScalarType scalar_type(DataType type);
std::optional<DataType> data_type(at::ScalarType type);

// A tensor over the bytes of an input; over a copy if `private_copy` or if the device is not the CPU. On the meta
// device it has no bytes.
at::Tensor tensor_of(const Input& input, at::Device device, bool private_copy);

// The name of a part inside a structure that may have a name itself.
std::string inner_name(const std::string& outer, const std::string& inner, std::size_t number);

// Flattens tuples, lists and dictionaries, in their order.
void flatten(const c10::IValue& value, const std::string& name, std::vector<Value>& values);

// The value as an output. Throws backend_kit::Error if a response cannot hold it.
Output output_of(const c10::IValue& value, const std::string& name);

// The value for a configured output. Throws backend_kit::Error if the model did not return it.
const Value& picked(std::span<const Pick> picks, std::size_t output, const std::vector<Value>& values);

// Throws the exception that is being handled as a backend_kit::Error: its message without the stack of C++ frames.
[[noreturn]] void rethrow(const std::string& doing);

}  // namespace torch_backend
