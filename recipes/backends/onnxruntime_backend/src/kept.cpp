#include "kept.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend_kit/datatype.hpp"

namespace onnx_backend {

KeptBinding::KeptBinding(const Environment& environment, const backend_kit::ModelConfig& config, const Plan& plan,
                         OrtSession* session)
    : environment_(environment),
      config_(config),
      plan_(plan),
      binding_(create<IoBinding>(api().CreateIoBinding, session)) {}

bool KeptBinding::take(const Inputs& inputs) {
    const bool small = std::ranges::all_of(inputs.tensors, [](const std::optional<backend_kit::Tensor>& tensor) {
        return tensor && tensor->datatype != TRITONSERVER_TYPE_BYTES && tensor->size <= most;
    });
    if (!small || (inputs.shapes != bound_ && !bind(inputs.shapes))) return false;
    for (std::size_t i = 0; i < inputs.tensors.size(); ++i) {
        std::memcpy(inputs_[i].bytes, inputs.tensors[i]->data, inputs.tensors[i]->size);
    }
    return true;
}

void KeptBinding::give(backend_kit::Batch& batch) const {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const backend_kit::TensorConfig& tensor = config_.all_outputs[i];
        batch.scatter(tensor.name, tensor.datatype, plan_.outputs[i].given(outputs_[i].shape), outputs_[i].place.bytes);
    }
}

bool KeptBinding::bind(const std::vector<Dims>& shapes) {
    bound_.reset();
    inputs_.resize(config_.all_inputs.size());
    outputs_.resize(config_.all_outputs.size());
    if (!find_output_shapes(shapes)) return false;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const backend_kit::TensorConfig& config = config_.all_inputs[i];
        const std::size_t size = backend_kit::tensor_size(config.datatype, shapes[i]);
        const Value value = tensor_over(environment_, inputs_[i].bytes, size, shapes[i], plan_.inputs[i].element);
        check(api().BindInput(binding_.get(), config.name.c_str(), value.get()));
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const backend_kit::TensorConfig& config = config_.all_outputs[i];
        auto& [place, shape] = outputs_[i];
        const std::size_t size = backend_kit::tensor_size(config.datatype, shape);
        const Value value = tensor_over(environment_, place.bytes, size, shape, plan_.outputs[i].element);
        check(api().BindOutput(binding_.get(), config.name.c_str(), value.get()));
    }
    bound_ = shapes;
    return true;
}

// Returns whether all outputs are known to be small tensors of numbers.
bool KeptBinding::find_output_shapes(const std::vector<Dims>& inputs) {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const DataType datatype = config_.all_outputs[i].datatype;
        std::optional<Dims> shape = plan_.outputs[i].declared(inputs);
        if (datatype == TRITONSERVER_TYPE_BYTES || !shape) return false;
        const std::size_t size = backend_kit::tensor_size(datatype, *shape);
        if (size == 0 || size > most) return false;
        outputs_[i].shape = std::move(*shape);
    }
    return true;
}

}  // namespace onnx_backend
