// Inputs and outputs: those of the model, those of the configuration, and the conversion between them.
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

// What an output of Triton has of the model's output: a sequence of maps becomes two, its keys and its values.
enum class OutputPart { whole, keys, values };

struct MapElements {
    ONNXTensorElementDataType key;
    ONNXTensorElementDataType value;
};

// An input or an output of a model, or a part of an output.
struct Port {
    std::string name;
    std::string source;  // the model's output that has it
    OutputPart part = OutputPart::whole;
    DataType datatype = TRITONSERVER_TYPE_INVALID;
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::string obstacle;                // why Triton does not support it, such as "is a sequence"; empty if it does
    bool has_rank = false;               // the number of dimensions is known
    bool may_be_scalar = false;          // no dimensions; before ONNX Runtime 1.24 also an unknown number of them
    Dims dims;                           // -1: open
    std::vector<std::string> dim_names;  // of open dimensions; empty if it has none
    std::optional<MapElements> maps;     // of a sequence of maps
};

struct Ports {
    std::vector<Port> inputs;    // without a default in the model
    std::vector<Port> defaults;  // inputs with a default in the model, which a request may override
    std::vector<Port> outputs;   // behind them the parts of those that are sequences of maps
};

Ports read_ports(const OrtSession* session, OrtAllocator* allocator);

// The source of the size of a dimension of an output.
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
    std::string source;  // name of the model's output
    OutputPart part = OutputPart::whole;
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    bool may_be_scalar = false;                   // no dimensions become dims [1]
    std::optional<std::vector<DimSource>> shape;  // how the shape follows from the inputs, if it does

    // The shape that the model declares for inputs of these shapes, if it does.
    std::optional<Dims> declared(const std::vector<Dims>& inputs) const;
    // The shape of a result as the response has it.
    Dims given(Dims result) const;
};

// How the configured inputs and outputs, in their order, are converted to the model's and back.
struct Plan {
    std::vector<InputPlan> inputs;
    std::vector<OutputPlan> outputs;
};

// Throws backend_kit::Error (invalid argument or unsupported) if the configuration does not match the model.
Plan make_plan(const backend_kit::ModelConfig& config, const Ports& ports);

}  // namespace onnx_backend
