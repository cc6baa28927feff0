#include "complete.hpp"

#include <algorithm>
#include <utility>

#include "backend_kit/error.hpp"

namespace torch_backend {
namespace {

using backend_kit::ModelConfig;
using backend_kit::TensorConfig;

// Facts about one input or output over all examples.
struct Known {
    TensorConfig port;  // dims with the batch dimension
    std::size_t seen = 0;
};

void merge(const std::vector<Sample>& samples, std::vector<Known>& all) {
    for (const Sample& sample : samples) {
        auto known =
            std::find_if(all.begin(), all.end(), [&](const Known& each) { return each.port.name == sample.name; });
        if (known == all.end()) {
            all.push_back({{.name = sample.name, .datatype = sample.type, .dims = sample.shape}, 1});
            continue;
        }
        auto& dims = known->port.dims;
        if (known->port.datatype != sample.type || dims.size() != sample.shape.size()) {
            throw backend_kit::invalid_argument(
                "the example inputs stored in the model disagree about type or rank of '" + sample.name + "'");
        }
        for (std::size_t i = 0; i < dims.size(); ++i) {
            if (dims[i] != sample.shape[i]) dims[i] = -1;
        }
        ++known->seen;
    }
}

// Returns whether the first dimension is the batch: it varies between the examples but is one number in each of them.
bool is_batch(const std::vector<Example>& examples) {
    std::vector<std::int64_t> rows;
    for (const Example& example : examples) {
        if (example.inputs.empty() || example.inputs[0].shape.empty()) return false;
        for (const auto* samples : {&example.inputs, &example.outputs}) {
            for (const Sample& sample : *samples) {
                if (sample.shape.empty() || sample.shape[0] != example.inputs[0].shape[0]) return false;
            }
        }
        rows.push_back(example.inputs[0].shape[0]);
    }
    return std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) != rows.end();
}

// The ports for the configuration; an input that an example omits is optional.
std::vector<TensorConfig> ports(std::vector<Known>& all, bool batched, std::size_t examples) {
    std::vector<TensorConfig> ports;
    for (auto& [port, seen] : all) {
        port.set_model_shape(std::move(port.dims), batched);
        port.optional = seen < examples;
        ports.push_back(std::move(port));
    }
    return ports;
}

ModelConfig from_examples(const std::vector<Example>& examples, std::int64_t batch, std::int64_t default_batch) {
    std::vector<Known> inputs;
    std::vector<Known> outputs;
    for (const Example& example : examples) {
        merge(example.inputs, inputs);
        merge(example.outputs, outputs);
    }
    ModelConfig found;
    found.max_batch_size = batch > 0 ? batch : is_batch(examples) ? default_batch : 0;
    found.inputs = ports(inputs, found.batching(), examples.size());
    found.outputs = ports(outputs, found.batching(), 0);
    return found;
}

std::optional<DataType> type_of(Form form) {
    switch (form) {
        case Form::texts:
            return TRITONSERVER_TYPE_BYTES;
        case Form::integer:
            return TRITONSERVER_TYPE_INT64;
        case Form::real:
            return TRITONSERVER_TYPE_FP64;
        case Form::truth:
            return TRITONSERVER_TYPE_BOOL;
        default:
            return std::nullopt;
    }
}

[[noreturn]] void refuse(const Signature& signature, const std::string& missing) {
    throw backend_kit::invalid_argument(
        "the configuration lacks " + missing + ", and the model does not declare types and dims: " + signature.text +
        "; write them to config.pbtxt, or store them with the model (a configuration in JSON as \"triton_config\", or "
        "example inputs by torch.utils.bundled_inputs)");
}

// Strings and numbers have their types in the signature. Throws for tensors, which do not.
ModelConfig from_signature(const Signature& signature, const ModelConfig& config) {
    ModelConfig found;
    found.max_batch_size = config.max_batch_size;
    for (const Argument& argument : signature.arguments) {
        if (argument.optional || config.input(argument.name) != nullptr) continue;
        const auto type = type_of(argument.form);
        if (!type && config.inputs.empty()) refuse(signature, "the input '" + argument.name + "'");
        const std::int64_t dim = argument.form == Form::texts ? -1 : 1;
        found.inputs.push_back(
            {.name = argument.name, .datatype = type.value_or(TRITONSERVER_TYPE_INVALID), .dims = {dim}});
    }
    if (!config.outputs.empty()) return found;
    if (!signature.leaves) refuse(signature, "the outputs");
    for (std::size_t i = 0; i < signature.leaves->size(); ++i) {
        const Leaf& leaf = (*signature.leaves)[i];
        const std::string name = leaf.name.empty() ? "OUTPUT__" + std::to_string(i) : leaf.name;
        if (config.output(name) != nullptr) continue;
        if (!leaf.type) refuse(signature, "the output '" + name + "'");
        found.outputs.push_back({.name = name, .datatype = *leaf.type, .dims = {-1}});
    }
    return found;
}

ModelConfig from_model(const ModelConfig& config, Network& network, std::int64_t default_batch) {
    if (const auto& stored = network.stored_config()) {
        try {
            return ModelConfig::parse(*stored);
        } catch (const backend_kit::Error& error) {
            throw backend_kit::invalid_argument(std::string("\"triton_config\" stored in the model: ") + error.what());
        }
    }
    const std::vector<Example> examples = network.examples();
    if (!examples.empty()) return from_examples(examples, config.max_batch_size, default_batch);
    return from_signature(network.signature(), config);
}

}  // namespace

bool complete(ModelConfig& config, Network& network, std::int64_t default_batch) {
    if (!config.inputs.empty() && !config.outputs.empty()) return false;
    const bool may_batch = config.inputs.empty() && config.outputs.empty() && config.max_batch_size == 0;
    ModelConfig found = from_model(config, network, may_batch ? default_batch : 0);
    if (may_batch) config.max_batch_size = found.max_batch_size;
    // Controls and states are listed elsewhere.
    std::erase_if(found.inputs, [&](const TensorConfig& each) { return config.input(each.name) != nullptr; });
    std::erase_if(found.outputs, [&](const TensorConfig& each) { return config.output(each.name) != nullptr; });
    if (config.inputs.empty()) config.inputs = std::move(found.inputs);
    if (config.outputs.empty()) config.outputs = std::move(found.outputs);
    return true;
}

}  // namespace torch_backend
