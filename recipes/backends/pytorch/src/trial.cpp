#include "trial.hpp"

#include "backend_kit/error.hpp"

namespace torch_backend {
namespace {

using backend_kit::datatype_name;
using backend_kit::shape_text;

[[noreturn]] void refuse(const Port& port, const std::string& model, const std::string& configuration) {
    throw backend_kit::invalid_argument("output '" + port.name + "': the model gives " + model +
                                        ", the configuration says " + configuration);
}

const at::Tensor* tensor_for(std::span<const Pick> picks, std::size_t output, const std::vector<Value>& values) {
    try {
        const c10::IValue& content = picked(picks, output, values).content;
        return content.isTensor() ? &content.toTensor() : nullptr;
    } catch (const backend_kit::Error&) {
        return nullptr;  // which values there are may depend on the data
    }
}

// The sizes that two tensors of the same rank have in common; -1 for others.
std::vector<std::int64_t> common_shape(const at::Tensor& left, const at::Tensor& right) {
    std::vector<std::int64_t> shape = left.sizes().vec();
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] != right.sizes()[i]) shape[i] = -1;
    }
    return shape;
}

bool fits(const std::vector<std::int64_t>& model, const std::vector<std::int64_t>& configured) {
    if (model.size() != configured.size()) return false;
    for (std::size_t i = 0; i < model.size(); ++i) {
        if (model[i] >= 0 && configured[i] >= 0 && model[i] != configured[i]) return false;
    }
    return true;
}

}  // namespace

std::vector<std::int64_t> shape_of(const Port& port, bool batched, std::int64_t open) {
    std::vector<std::int64_t> shape;
    if (batched) shape.push_back(open);
    for (const std::int64_t size : port.dims) shape.push_back(size < 0 ? open : size);
    return shape;
}

void Trials::check(std::span<const Pick> picks, std::span<const Port> outputs) const {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const at::Tensor* const left = tensor_for(picks, i, few);
        const at::Tensor* const right = tensor_for(picks, i, many);
        if (left == nullptr || right == nullptr) continue;
        if (left->scalar_type() != right->scalar_type()) continue;
        const auto type = data_type(left->scalar_type());
        if (type && *type != outputs[i].type) {
            refuse(outputs[i], std::string(datatype_name(*type)), std::string(datatype_name(outputs[i].type)));
        }
        if (!sizes_count || left->dim() != right->dim()) continue;
        const std::vector<std::int64_t> model = common_shape(*left, *right);
        const std::vector<std::int64_t> configured = shape_of(outputs[i], batched, -1);
        const bool is_number = model.empty() && configured == std::vector<std::int64_t>{1};
        if (!is_number && !fits(model, configured)) refuse(outputs[i], shape_text(model), shape_text(configured));
    }
}

}  // namespace torch_backend
