#include "ports.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "backend_kit/datatype.hpp"
#include "backend_kit/error.hpp"

namespace onnx_backend {
namespace {

using backend_kit::invalid_argument;
using backend_kit::ModelConfig;
using backend_kit::shape_text;
using backend_kit::TensorConfig;

DataType datatype_of(ONNXTensorElementDataType element) {
    switch (element) {
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
            return TRITONSERVER_TYPE_FP32;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
            return TRITONSERVER_TYPE_UINT8;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
            return TRITONSERVER_TYPE_INT8;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16:
            return TRITONSERVER_TYPE_UINT16;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16:
            return TRITONSERVER_TYPE_INT16;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
            return TRITONSERVER_TYPE_INT32;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
            return TRITONSERVER_TYPE_INT64;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING:
            return TRITONSERVER_TYPE_BYTES;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
            return TRITONSERVER_TYPE_BOOL;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
            return TRITONSERVER_TYPE_FP16;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
            return TRITONSERVER_TYPE_FP64;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32:
            return TRITONSERVER_TYPE_UINT32;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64:
            return TRITONSERVER_TYPE_UINT64;
        case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
            return TRITONSERVER_TYPE_BF16;
        default:
            return TRITONSERVER_TYPE_INVALID;
    }
}

std::string element_name(ONNXTensorElementDataType element) {
    constexpr std::array<const char*, 12> names{
        "COMPLEX64",      "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
        "FLOAT8E5M2FNUZ", "UINT4",      "INT4",     "FLOAT4E2M1",   "UINT2",          "INT2"};
    constexpr int first = 14;
    const int index = element - first;
    return index >= 0 && index < static_cast<int>(names.size()) ? names[static_cast<std::size_t>(index)]
                                                                : std::to_string(element);
}

std::string obstacle_of(ONNXType type) {
    switch (type) {
        case ONNX_TYPE_TENSOR:
            return {};
        case ONNX_TYPE_SEQUENCE:
            return "is a sequence";
        case ONNX_TYPE_MAP:
            return "is a map";
        case ONNX_TYPE_SPARSETENSOR:
            return "is a sparse tensor";
        case ONNX_TYPE_OPTIONAL:
            return "is an optional";
        default:
            return "is not a tensor";
    }
}

void read_shape(const OrtTensorTypeAndShapeInfo* info, Port& port) {
    std::size_t rank = 0;
    check(api().GetDimensionsCount(info, &rank));
    port.dims.resize(rank);
    std::vector<const char*> names(rank, "");
    if (rank > 0) {
        check(api().GetDimensions(info, port.dims.data(), rank));
        check(api().GetSymbolicDimensions(info, names.data(), rank));
    }
    port.dim_names.assign(names.begin(), names.end());
    const bool tells = api().TensorTypeAndShape_HasShape != nullptr;
    const bool has_shape = tells && api().TensorTypeAndShape_HasShape(info);
    port.has_rank = rank > 0 || has_shape;
    port.may_be_scalar = rank == 0 && (has_shape || !tells);
}

ONNXType kind_of(const OrtTypeInfo* type) {
    ONNXType kind = ONNX_TYPE_UNKNOWN;
    check(api().GetOnnxTypeFromTypeInfo(type, &kind));
    return kind;
}

ONNXTensorElementDataType element_of(const OrtTypeInfo* type, const OrtTensorTypeAndShapeInfo*& info) {
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    check(api().CastTypeInfoToTensorInfo(type, &info));
    check(api().GetTensorElementType(info, &element));
    return element;
}

std::optional<MapElements> read_maps(const OrtTypeInfo* sequence_type) {
    const OrtSequenceTypeInfo* sequence = nullptr;
    check(api().CastTypeInfoToSequenceTypeInfo(sequence_type, &sequence));
    const auto each = create<TypeInfo>(api().GetSequenceElementType, sequence);
    if (kind_of(each.get()) != ONNX_TYPE_MAP) return std::nullopt;
    const OrtMapTypeInfo* map = nullptr;
    check(api().CastTypeInfoToMapTypeInfo(each.get(), &map));
    ONNXTensorElementDataType key = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    check(api().GetMapKeyType(map, &key));
    const auto value = create<TypeInfo>(api().GetMapValueType, map);
    if (kind_of(value.get()) != ONNX_TYPE_TENSOR) return std::nullopt;
    const OrtTensorTypeAndShapeInfo* ignored = nullptr;
    return MapElements{key, element_of(value.get(), ignored)};
}

Port read_port(std::string name, const OrtTypeInfo* type) {
    Port port;
    port.name = port.source = std::move(name);
    const ONNXType kind = kind_of(type);
    port.obstacle = obstacle_of(kind);
    if (kind == ONNX_TYPE_SEQUENCE) port.maps = read_maps(type);
    if (kind != ONNX_TYPE_TENSOR) return port;
    const OrtTensorTypeAndShapeInfo* info = nullptr;
    port.element = element_of(type, info);
    port.datatype = datatype_of(port.element);
    if (port.datatype == TRITONSERVER_TYPE_INVALID) {
        port.obstacle = "has the ONNX element type " + element_name(port.element);
    }
    read_shape(info, port);
    return port;
}

template <class Count, class Name, class Type>
std::vector<Port> read_list(const OrtSession* session, OrtAllocator* allocator, Count* count, Name* name, Type* type) {
    std::size_t size = 0;
    check(count(session, &size));
    std::vector<Port> ports;
    for (std::size_t index = 0; index < size; ++index) {
        char* text = nullptr;
        check(name(session, index, allocator, &text));
        std::string copy(text);
        check(api().AllocatorFree(allocator, text));
        ports.push_back(read_port(std::move(copy), create<TypeInfo>(type, session, index).get()));
    }
    return ports;
}

const Port* find(const std::vector<Port>& ports, const std::string& name) {
    const auto found = std::ranges::find(ports, name, &Port::name);
    return found == ports.end() ? nullptr : &*found;
}

std::string names_of(const std::vector<Port>& ports) {
    std::string names;
    for (const Port& port : ports) names += (names.empty() ? "" : ", ") + port.name;
    return names.empty() ? "none" : names;
}

Port map_port(const std::string& source, OutputPart part, ONNXTensorElementDataType element) {
    Port port;
    port.name = source + (part == OutputPart::keys ? "_keys" : "_values");
    port.source = source;
    port.part = part;
    port.element = element;
    port.datatype = datatype_of(element);
    port.has_rank = true;
    port.dims = {-1, -1};
    port.dim_names.resize(port.dims.size());
    return port;
}

// Adds the parts of sequences of maps, unless the model has an output of that name.
std::vector<Port> with_parts(std::vector<Port> ports) {
    std::vector<Port> parts;
    for (const Port& port : ports) {
        if (!port.maps) continue;
        parts.push_back(map_port(port.name, OutputPart::keys, port.maps->key));
        parts.push_back(map_port(port.name, OutputPart::values, port.maps->value));
    }
    std::erase_if(parts, [&](const Port& part) { return find(ports, part.name) != nullptr; });
    std::ranges::move(parts, std::back_inserter(ports));
    return ports;
}

// Compares a configured input or output with the model's.
class Comparison {
public:
    Comparison(const ModelConfig& config, const char* kind) : config_(config), kind_(kind) {}

    const Port& matched(const TensorConfig& tensor, const std::vector<Port>& ports, const Port* port) const {
        if (port == nullptr) {
            throw refusal(tensor, "the model has none of that name; it has " + names_of(ports));
        }
        if (!port->obstacle.empty()) {
            throw refusal(tensor, port->obstacle + ", which Triton does not support" + advice(*port), true);
        }
        if (port->datatype != tensor.datatype) {
            throw refusal(tensor, "the configuration has type " +
                                           std::string(backend_kit::config_type_name(tensor.datatype)) +
                                           ", the model " + std::string(backend_kit::config_type_name(port->datatype)));
        }
        check_dims(tensor, *port);
        return *port;
    }

    // Dims [1] for a tensor without dimensions: a configuration cannot have empty dims.
    bool stands_for_scalar(const TensorConfig& tensor, const Port& port) const {
        return port.may_be_scalar && !config_.batching() && tensor.model_dims() == std::vector<std::int64_t>{1};
    }

    backend_kit::Error refusal(const TensorConfig& tensor, const std::string& complaint,
                               bool unsupported = false) const {
        return {unsupported ? TRITONSERVER_ERROR_UNSUPPORTED : TRITONSERVER_ERROR_INVALID_ARG,
                std::string(tensor.role()) + kind_ + " '" + tensor.name + "' of model " + config_.name + ": " +
                    complaint};
    }

private:
    static std::string advice(const Port& port) {
        if (!port.maps) return {};
        return "; configure " + port.name + "_keys and " + port.name + "_values instead";
    }

    void check_dims(const TensorConfig& tensor, const Port& port) const {
        if (!port.has_rank || stands_for_scalar(tensor, port)) return;
        std::vector<std::int64_t> dims = tensor.model_dims();
        if (config_.batching()) dims.insert(dims.begin(), -1);
        const bool fits = std::ranges::equal(dims, port.dims, [](std::int64_t configured, std::int64_t own) {
            return configured == own || configured == -1 || own == -1;
        });
        // A fixed first dimension is not a batch, unless all batches have one row.
        const bool batches = !config_.batching() || port.dims.empty() || port.dims[0] == -1 ||
                             (port.dims[0] == 1 && config_.max_batch_size == 1);
        if (!fits || !batches) {
            throw refusal(tensor, "the configuration has the shape " + shape_text(dims) +
                                           (config_.batching() ? " with the batch dimension" : "") +
                                           ", the model " + shape_text(port.dims));
        }
    }

    const ModelConfig& config_;
    const char* kind_;
};

// The input and its dimension with the name of an open dimension.
std::optional<DimSource> source_of(const std::string& dim_name, const std::vector<const Port*>& inputs,
                                   const ModelConfig& config) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (config.all_inputs[i].optional) continue;
        for (std::size_t d = 0; d < inputs[i]->dim_names.size(); ++d) {
            if (inputs[i]->dims[d] == -1 && inputs[i]->dim_names[d] == dim_name) return DimSource{-1, i, d};
        }
    }
    return std::nullopt;
}

std::optional<std::vector<DimSource>> shape_plan(const Port& output, const std::vector<const Port*>& inputs,
                                                 const ModelConfig& config) {
    if (!output.has_rank) return std::nullopt;
    std::vector<DimSource> sources;
    for (std::size_t d = 0; d < output.dims.size(); ++d) {
        if (output.dims[d] >= 0) {
            sources.push_back({output.dims[d], std::nullopt, 0});
            continue;
        }
        if (output.dim_names[d].empty()) return std::nullopt;
        const auto source = source_of(output.dim_names[d], inputs, config);
        if (!source) return std::nullopt;
        sources.push_back(*source);
    }
    return sources;
}

}  // namespace

std::optional<Dims> OutputPlan::declared(const std::vector<Dims>& inputs) const {
    if (!shape) return std::nullopt;
    Dims dims;
    for (const DimSource& source : *shape) {
        dims.push_back(source.input ? inputs[*source.input][source.dim] : source.fixed);
    }
    return dims;
}

Dims OutputPlan::given(Dims result) const {
    if (result.empty() && may_be_scalar) return {1};
    return result;
}

Ports read_ports(const OrtSession* session, OrtAllocator* allocator) {
    const Api& a = api();
    return {read_list(session, allocator, a.SessionGetInputCount, a.SessionGetInputName, a.SessionGetInputTypeInfo),
            read_list(session, allocator, a.SessionGetOverridableInitializerCount,
                      a.SessionGetOverridableInitializerName, a.SessionGetOverridableInitializerTypeInfo),
            with_parts(read_list(session, allocator, a.SessionGetOutputCount, a.SessionGetOutputName,
                                 a.SessionGetOutputTypeInfo))};
}

Plan make_plan(const ModelConfig& config, const Ports& ports) {
    Plan plan;
    const Comparison inputs(config, "input");
    std::vector<const Port*> matched;
    for (const TensorConfig& tensor : config.all_inputs) {
        const Port* with_default = find(ports.defaults, tensor.name);
        const Port* own = with_default != nullptr ? with_default : find(ports.inputs, tensor.name);
        const Port& port = inputs.matched(tensor, ports.inputs, own);
        if (tensor.optional && with_default == nullptr) {
            throw inputs.refusal(tensor, "the configuration makes it optional, but the model has no default for it");
        }
        matched.push_back(&port);
        plan.inputs.push_back({port.element, inputs.stands_for_scalar(tensor, port)});
    }
    for (const Port& port : ports.inputs) {
        if (config.input(port.name) == nullptr) {
            throw inputs.refusal({.name = port.name}, "the model needs it, the configuration lacks it");
        }
    }
    if (config.outputs.empty()) throw invalid_argument("the configuration of model " + config.name + " has no outputs");
    const Comparison outputs(config, "output");
    for (const TensorConfig& tensor : config.all_outputs) {
        const Port& port = outputs.matched(tensor, ports.outputs, find(ports.outputs, tensor.name));
        const bool may_be_scalar = !config.batching() && !tensor.model_dims().empty();
        // An output that is also an input already has its place: the library does not write it anywhere else.
        const bool computed = find(ports.inputs, port.name) == nullptr && find(ports.defaults, port.name) == nullptr;
        plan.outputs.push_back({port.source, port.part, port.element, may_be_scalar,
                                computed ? shape_plan(port, matched, config) : std::nullopt});
    }
    return plan;
}

}  // namespace onnx_backend
