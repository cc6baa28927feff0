// Between the bytes of requests and the values of LibTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "network.hpp"

namespace torch_backend {

// One value that a model gave, with the name that the structure around it gives.
struct Value {
    std::string name;
    c10::IValue content;
};

// Throws backend_kit::Error (unsupported) when this LibTorch lacks the type.
at::ScalarType scalar_type(DataType type);
std::optional<DataType> data_type(at::ScalarType type);

// A tensor over the bytes of an input; with bytes of its own when `private_copy` or when the device is not the CPU.
at::Tensor tensor_of(const Input& input, at::Device device, bool private_copy);

// The name of a part inside a structure that may have a name itself.
std::string inner_name(const std::string& outer, const std::string& inner, std::size_t number);

// Takes tuples, lists and dictionaries apart, in their order.
void flatten(const c10::IValue& value, const std::string& name, std::vector<Value>& values);

// The value as an output. Throws backend_kit::Error when it has no form that a response can carry.
Output output_of(const c10::IValue& value, const std::string& name);

// The value that a configured output is. Throws backend_kit::Error when the model did not give it.
const Value& picked(std::span<const Pick> picks, std::size_t output, const std::vector<Value>& values);

// Throws the exception that is being handled as a backend_kit::Error: what it says without the stack of C++ frames.
[[noreturn]] void rethrow(const std::string& doing);

}  // namespace torch_backend
