// TorchScript files.
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <utility>

#include "backend_kit/error.hpp"
#include "copies.hpp"
#include "effects.hpp"
#include "runtime.hpp"
#include "trial.hpp"
#include "values.hpp"

namespace torch_backend {
namespace {

using backend_kit::invalid_argument;
using torch::jit::IValue;
using torch::jit::Module;
using torch::jit::Stack;

bool is_tensor(const c10::Type& type) {
    return type.kind() == c10::TypeKind::TensorType;
}

Form form_of(const c10::Type& type) {
    switch (type.kind()) {
        case c10::TypeKind::TensorType:
            return Form::tensor;
        case c10::TypeKind::IntType:
            return Form::integer;
        case c10::TypeKind::FloatType:
            return Form::real;
        case c10::TypeKind::BoolType:
            return Form::truth;
        case c10::TypeKind::OptionalType:
            return form_of(*type.expectRef<c10::OptionalType>().getElementType());
        case c10::TypeKind::ListType: {
            const auto& element = *type.expectRef<c10::ListType>().getElementType();
            if (is_tensor(element)) return Form::tensors;
            return element.kind() == c10::TypeKind::StringType ? Form::texts : Form::other;
        }
        case c10::TypeKind::DictType: {
            const auto& dictionary = type.expectRef<c10::DictType>();
            const bool by_text = dictionary.getKeyType()->kind() == c10::TypeKind::StringType;
            return by_text && is_tensor(*dictionary.getValueType()) ? Form::dictionary : Form::other;
        }
        default:
            return Form::other;
    }
}

std::optional<DataType> number_type(const c10::Type& type) {
    switch (type.kind()) {
        case c10::TypeKind::IntType:
            return TRITONSERVER_TYPE_INT64;
        case c10::TypeKind::FloatType:
            return TRITONSERVER_TYPE_FP64;
        case c10::TypeKind::BoolType:
            return TRITONSERVER_TYPE_BOOL;
        case c10::TypeKind::StringType:
            return TRITONSERVER_TYPE_BYTES;
        default:
            return std::nullopt;
    }
}

// Adds the values of a result type; returns false if only a run can tell them.
bool add_leaves(const c10::Type& type, const std::string& name, std::vector<Leaf>& leaves) {
    if (is_tensor(type)) {
        leaves.push_back({name, std::nullopt});
        return true;
    }
    if (const auto number = number_type(type)) {
        leaves.push_back({name, number});
        return true;
    }
    if (type.kind() == c10::TypeKind::ListType) {
        const auto number = number_type(*type.expectRef<c10::ListType>().getElementType());
        if (number) leaves.push_back({name, number});
        return number.has_value();
    }
    if (type.kind() != c10::TypeKind::TupleType) return false;
    const auto& tuple = type.expectRef<c10::TupleType>();
    for (std::size_t i = 0; i < tuple.elements().size(); ++i) {
        const std::string field = tuple.schema() ? tuple.schema()->arguments()[i].name() : std::string();
        if (!add_leaves(*tuple.elements()[i], inner_name(name, field, i), leaves)) return false;
    }
    return true;
}

Signature signature_of(const c10::FunctionSchema& schema, const std::string& method) {
    Signature signature;
    for (std::size_t i = 1; i < schema.arguments().size(); ++i) {
        const auto& argument = schema.arguments()[i];
        const bool none = argument.type()->kind() == c10::TypeKind::OptionalType;
        signature.arguments.push_back(
            {argument.name(), form_of(*argument.type()), none || argument.default_value().has_value()});
        signature.text += (i == 1 ? "" : ", ") + argument.name() + ": " + argument.type()->annotation_str();
    }
    signature.text = method + "(" + signature.text + ") -> " + schema.returns().at(0).type()->annotation_str();
    std::vector<Leaf> leaves;
    if (add_leaves(*schema.returns()[0].type(), {}, leaves)) signature.leaves = std::move(leaves);
    return signature;
}

torch::jit::Method method_of(const Module& module, const std::string& name) {
    if (const auto found = module.find_method(name)) return *found;
    std::vector<std::string> names;
    for (const auto& method : module.get_methods()) {
        if (!method.name().starts_with("__")) names.push_back(method.name());
    }
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string meant = backend_kit::nearest(name, views);
    std::string text = "the TorchScript module has no method " + name + "() (MODULE_METHOD_NAME); ";
    if (!meant.empty()) throw invalid_argument(text + "did you mean " + meant + "?");
    text += names.empty() ? "it has none" : "it has ";
    for (const std::string& each : names) text += (&each == names.data() ? "" : ", ") + each;
    throw invalid_argument(text);
}

void set_eval(const Module& module) {
    for (Module each : module.modules()) {
        if (each.hasattr("training")) each.setattr("training", false);
    }
}

template <class Number>
Number number_of(const Input& input) {
    const at::Tensor tensor = tensor_of(input, at::kCPU, false);
    if (tensor.numel() != 1) {
        throw invalid_argument("a single number is needed, the request has " + std::to_string(tensor.numel()));
    }
    return tensor.item<Number>();
}

// An argument made from several inputs, in the order of its elements.
struct Container {
    std::size_t argument = 0;
    bool is_dictionary = false;
    std::vector<std::size_t> inputs;
};

class ScriptNetwork final : public Network {
public:
    ScriptNetwork(const std::string& path, const Settings& settings)
        : settings_(settings), device_(resolve(settings.device.value_or(Device::cpu))) {
        torch::jit::ExtraFilesMap extra{{"triton_config", ""}};
        module_ = torch::jit::load(path, at::Device(at::kCPU), extra);
        if (!extra["triton_config"].empty()) stored_config_ = extra["triton_config"];
        const auto method = method_of(module_, settings.method);
        set_eval(module_);
        if (!device_.is_cpu()) module_.to(device_);
        method_ = &method.function();
        signature_ = signature_of(method_->getSchema(), settings.method);
        effects_ = effects_of(module_, method, signature_);
        for (const auto& argument : method_->getSchema().arguments()) {
            defaults_.push_back(argument.default_value().value_or(IValue()));
        }
    }

    void bind(std::span<const Port> inputs, std::span<const Port> outputs, bool batched) override {
        Network::bind(inputs, outputs, batched);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            names_.push_back(inputs[i].name);
            if (!is_container(signature_.arguments[places_[i].argument].form)) singles_.push_back(i);
        }
        for (std::size_t a = 0; a < signature_.arguments.size(); ++a) {
            const Form form = signature_.arguments[a].form;
            if (!is_container(form)) continue;
            Container container{a, form == Form::dictionary, {}};
            for (std::size_t i = 0; i < inputs.size(); ++i) {
                if (places_[i].argument == a) container.inputs.push_back(i);
            }
            std::sort(container.inputs.begin(), container.inputs.end(),
                      [&](std::size_t x, std::size_t y) { return places_[x].element < places_[y].element; });
            if (!container.inputs.empty()) containers_.push_back(std::move(container));
        }
        if (const auto trials = try_out(inputs)) trials->check(picks_, outputs);
    }

    std::unique_ptr<Runner> make_runner() override;

    std::vector<Output> run(const IValue& self, std::span<const Input> inputs, const std::vector<bool>& wanted) const {
        try {
            const RunScope scope(settings_, device_);
            std::vector<Value> values;
            flatten(call(stack_of(self, inputs, device_)), {}, values);
            std::vector<Output> outputs(picks_.size());
            for (std::size_t i = 0; i < picks_.size(); ++i) {
                if (wanted[i]) outputs[i] = output_of(picked(picks_, i, values).content, picks_[i].name);
            }
            return outputs;
        } catch (...) {
            rethrow("the model failed");
        }
    }

    std::vector<Example> examples() override {
        // torch.utils.bundled_inputs names them so.
        const std::string end = settings_.method == "forward" ? "" : "_for_" + settings_.method;
        const auto stored = module_.find_method("get_all_bundled_inputs" + end);
        if (!stored) return {};
        try {
            const RunScope scope(settings_, device_);
            std::vector<Example> examples;
            Stack stack{module_._ivalue()};
            stored->function().run(stack);
            const IValue calls = stack.back();
            const IValue self = own_module();
            for (const IValue& arguments : calls.toListRef()) {
                examples.push_back(example(self, arguments.toTupleRef().elements()));
            }
            return examples;
        } catch (...) {
            rethrow("the example inputs stored in the model cannot be used");
        }
    }

private:
    // The module for one instance. What no run writes to is shared, so that the module as it was loaded never changes.
    IValue own_module() const {
        const IValue loaded = module_._ivalue();
        if (settings_.weight_sharing == false) return copy_of(loaded, {});
        return effects_.keeps_state ? copy_of(loaded, effects_.read_only) : loaded;
    }

    IValue call(Stack stack) const {
        if (settings_.optimized_execution) {
            method_->run(stack);
        } else {
            const torch::jit::GraphOptimizerEnabledGuard plain(false);
            method_->run(stack);
        }
        return std::move(stack.back());
    }

    at::Tensor tensor(const Input& input, std::size_t argument, at::Device device) const {
        return tensor_of(input, device, effects_.owned[argument]);
    }

    IValue single(const Input& input, std::size_t argument, at::Device device) const {
        switch (signature_.arguments[argument].form) {
            case Form::texts: {
                c10::List<std::string> texts;
                texts.reserve(input.texts.size());
                for (const std::string_view text : input.texts) texts.emplace_back(text);
                return texts;
            }
            case Form::integer:
                return number_of<std::int64_t>(input);
            case Form::real:
                return number_of<double>(input);
            case Form::truth:
                return number_of<bool>(input);
            default:
                return tensor(input, argument, device);
        }
    }

    // A List[Tensor] or Dict[str, Tensor] argument from the given inputs; nothing if none is given and it is optional.
    std::optional<IValue> container(const Container& from, std::span<const Input> inputs, at::Device device) const {
        c10::List<at::Tensor> list;
        c10::Dict<std::string, at::Tensor> dictionary;
        for (const std::size_t input : from.inputs) {
            if (!inputs[input].present) continue;
            at::Tensor element = tensor(inputs[input], from.argument, device);
            if (from.is_dictionary) {
                dictionary.insert(names_[input], std::move(element));
            } else {
                list.push_back(std::move(element));
            }
        }
        if (list.empty() && dictionary.empty() && signature_.arguments[from.argument].optional) return std::nullopt;
        return from.is_dictionary ? IValue(std::move(dictionary)) : IValue(std::move(list));
    }

    // The arguments of the method in their order, the module itself first.
    Stack stack_of(const IValue& self, std::span<const Input> inputs, at::Device device) const {
        Stack stack = defaults_;
        stack[0] = self;
        for (const std::size_t input : singles_) {
            const std::size_t argument = places_[input].argument;
            if (inputs[input].present) stack[argument + 1] = single(inputs[input], argument, device);
        }
        for (const Container& each : containers_) {
            if (auto value = container(each, inputs, device)) stack[each.argument + 1] = std::move(*value);
        }
        return stack;
    }

    // Whether the types of the results can be known before there is data: all arguments are tensors, always given.
    bool can_be_tried(std::span<const Port> inputs) const {
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            const Form form = signature_.arguments[places_[i].argument].form;
            if (inputs[i].optional || (form != Form::tensor && !is_container(form))) return false;
        }
        return true;
    }

    // Runs the method on tensors that have no memory, with this number for each open size.
    std::vector<Value> values_for(std::span<const Port> inputs, std::int64_t open) const {
        const RunScope scope(settings_, at::kCPU);
        const torch::jit::GraphOptimizerEnabledGuard plain(false);
        std::vector<std::vector<std::int64_t>> shapes;
        std::vector<Input> given;
        for (const Port& port : inputs) shapes.push_back(shape_of(port, batched_, open));
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            given.push_back({.present = true, .type = inputs[i].type, .shape = shapes[i]});
        }
        Stack stack = stack_of(module_.deepcopy(at::Device(at::kMeta))._ivalue(), given, at::kMeta);
        method_->run(stack);
        std::vector<Value> values;
        flatten(stack.back(), {}, values);
        return values;
    }

    std::optional<Trials> try_out(std::span<const Port> inputs) const {
        if (!can_be_tried(inputs)) return std::nullopt;
        const bool is_fixed = std::none_of(inputs.begin(), inputs.end(), [](const Port& port) {
            return std::any_of(port.dims.begin(), port.dims.end(), [](std::int64_t size) { return size < 0; });
        });
        try {
            return Trials{values_for(inputs, 2), values_for(inputs, 37), batched_, is_fixed};
        } catch (const std::exception&) {
            return std::nullopt;  // what it does depends on the data, or not all its operators work without any
        }
    }

    void add_samples(const IValue& value, const Argument& argument, std::vector<Sample>& samples) const {
        const auto add = [&](const std::string& name, const IValue& part) {
            const Output sample = output_of(part, name);
            samples.push_back({name, sample.type, sample.shape});
        };
        if (argument.form == Form::other || value.isNone() || (is_number(argument.form) && argument.optional)) return;
        if (argument.form == Form::tensors) {
            std::size_t number = 0;
            for (const IValue& part : value.toListRef()) add(argument.name + "__" + std::to_string(number++), part);
        } else if (argument.form == Form::dictionary) {
            for (const auto& item : value.toGenericDict()) add(item.key().toStringRef(), item.value());
        } else {
            add(argument.name, value);
        }
    }

    Example example(const IValue& self, const std::vector<IValue>& given) const {
        Example example;
        Stack stack = defaults_;
        stack[0] = self;
        for (std::size_t i = 0; i < given.size() && i < signature_.arguments.size(); ++i) {
            stack[i + 1] = given[i];
            add_samples(given[i], signature_.arguments[i], example.inputs);
        }
        std::vector<Value> values;
        flatten(call(std::move(stack)), {}, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const std::string name = values[i].name.empty() ? "OUTPUT__" + std::to_string(i) : values[i].name;
            const Output sample = output_of(values[i].content, name);
            example.outputs.push_back({name, sample.type, sample.shape});
        }
        return example;
    }

    Settings settings_;
    at::Device device_;
    Module module_;
    torch::jit::Function* method_ = nullptr;
    Effects effects_;
    Stack defaults_;  // of the arguments; the module's place comes first
    std::vector<std::string> names_;
    std::vector<std::size_t> singles_;  // inputs that are one argument each
    std::vector<Container> containers_;
};

class ScriptRunner final : public Runner {
public:
    ScriptRunner(const ScriptNetwork& network, IValue self) : network_(network), self_(std::move(self)) {}

    std::vector<Output> run(std::span<const Input> inputs, const std::vector<bool>& wanted) override {
        return network_.run(self_, inputs, wanted);
    }

private:
    const ScriptNetwork& network_;
    IValue self_;
};

std::unique_ptr<Runner> ScriptNetwork::make_runner() {
    try {
        return std::make_unique<ScriptRunner>(*this, own_module());
    } catch (...) {
        rethrow("the module cannot be copied, and its instances cannot share it");
    }
}

}  // namespace

std::unique_ptr<Network> load_script(const std::string& path, const Settings& settings) {
    try {
        return std::make_unique<ScriptNetwork>(path, settings);
    } catch (const std::exception& error) {
        const bool lacks_operator = std::string_view(error.what()).find("Unknown builtin op") != std::string_view::npos;
        rethrow("cannot load " + path + " as TorchScript" +
                (lacks_operator ? " (OPERATOR_LIBRARIES can name a library that has the operator)" : ""));
    }
}

}  // namespace torch_backend
