#include "complete.hpp"

#include <algorithm>

#include "backend_kit/error.hpp"

namespace onnx_backend {
namespace {

using backend_kit::TensorConfig;

// A sequence of maps has its parts, which have an open first dimension, in its place.
bool open_first(const Port& port) { return port.maps || (!port.dims.empty() && port.dims[0] == -1); }

// The ports that the configuration lacks, which are those that it does not list as controls or states.
template <class Listed>
std::vector<TensorConfig> described(const std::vector<Port>& ports, const char* kind, bool batched, Listed&& listed) {
    std::vector<TensorConfig> tensors;
    for (const Port& port : ports) {
        if (listed(port.name) || port.maps) continue;
        const std::string name = std::string(kind) + " '" + port.name + "' of the model ";
        if (!port.obstacle.empty()) {
            throw backend_kit::unsupported(name + port.obstacle + ", which Triton does not support");
        }
        if (!port.has_rank && !port.may_be_scalar) {
            throw backend_kit::invalid_argument(name +
                                                "does not declare its shape; write inputs and outputs in config.pbtxt");
        }
        if (batched && !open_first(port)) {
            throw backend_kit::invalid_argument(name + "has no open first dimension, which max_batch_size needs");
        }
        TensorConfig& tensor = tensors.emplace_back();
        tensor.name = port.name;
        tensor.datatype = port.datatype;
        std::vector<std::int64_t> shape = port.dims;
        std::ranges::replace(shape, 0, -1);  // a configuration cannot have dims of 0
        tensor.set_model_shape(std::move(shape), batched);
    }
    return tensors;
}

}  // namespace

bool complete(backend_kit::ModelConfig& config, const Ports& ports, std::int64_t default_batch) {
    const bool both = config.inputs.empty() && config.outputs.empty();
    if (!config.inputs.empty() && !config.outputs.empty()) return false;
    if (both && config.max_batch_size == 0 && default_batch > 0 && !ports.inputs.empty() &&
        std::ranges::all_of(ports.inputs, open_first) && std::ranges::all_of(ports.outputs, open_first)) {
        config.max_batch_size = default_batch;
        config.dynamic_batching = config.dynamic_batching || default_batch > 1;
    }
    if (config.inputs.empty()) {
        config.inputs = described(ports.inputs, "input", config.batching(),
                                  [&](const std::string& name) { return config.input(name) != nullptr; });
    }
    if (config.outputs.empty()) {
        config.outputs = described(ports.outputs, "output", config.batching(),
                                   [&](const std::string& name) { return config.output(name) != nullptr; });
    }
    return true;
}

}  // namespace onnx_backend
