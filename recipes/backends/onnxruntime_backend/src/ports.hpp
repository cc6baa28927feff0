// Inputs and outputs: what a model has, what the configuration says of them, and the way from the one to the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api.hpp"
#include "backend_kit/config.hpp"
#include "runtime.hpp"

namespace onnx_backend {

using backend_kit::DataType;
using Dims = std::vector<std::int64_t>;

// An input or an output of a model.
struct Port {
    std::string name;
    DataType datatype = TRITONSERVER_TYPE_INVALID;
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::string obstacle;                // why Triton cannot carry it, such as "is a sequence"; empty if it can
    bool has_rank = false;               // whether the number of dimensions is known
    bool may_be_scalar = false;          // no dimensions; before ONNX Runtime 1.24 also: their number is not known
    Dims dims;                           // -1: open
    std::vector<std::string> dim_names;  // of open dimensions; empty where there is none
};

struct Ports {
    std::vector<Port> inputs;    // without a value in the model
    std::vector<Port> defaults;  // inputs with a value in the model, which a request may override
    std::vector<Port> outputs;
};

Ports read_ports(const OrtSession* session, OrtAllocator* allocator);

// Where the size of a dimension of an output comes from.
struct DimSource {
    std::int64_t fixed = -1;
    std::optional<std::size_t> input;  // index in the configuration
    std::size_t dim = 0;               // of that input
};

struct InputPlan {
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    bool scalar = false;  // the configuration has dims [1], the model no dimensions
};

struct OutputPlan {
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    bool may_be_scalar = false;                   // no dimensions become dims [1]
    std::optional<std::vector<DimSource>> shape;  // how the shape follows from the inputs, where it does

    // The shape that the model declares for inputs of these shapes, if it does.
    std::optional<Dims> declared(const std::vector<Dims>& inputs) const;
    // The shape of a result as a response has it.
    Dims given(Dims result) const;
};

// How the configured inputs and outputs, in their order, are brought to the model and back.
struct Plan {
    std::vector<InputPlan> inputs;
    std::vector<OutputPlan> outputs;
};

// Throws backend_kit::Error (invalid argument or unsupported) when the configuration does not go with the model.
Plan make_plan(const backend_kit::ModelConfig& config, const Ports& ports);

}  // namespace onnx_backend
