#include "instance.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "backend_kit/datatype.hpp"
#include "backend_kit/log.hpp"

namespace onnx_backend {
namespace {

using backend_kit::Batch;
using backend_kit::Error;
using backend_kit::TensorConfig;
using Dims = std::vector<std::int64_t>;

Value tensor_over(const Environment& environment, void* data, std::size_t size, const Dims& shape,
                  ONNXTensorElementDataType element) {
    return create<Value>(api().CreateTensorWithDataAsOrtValue, environment.cpu(), data, size, shape.data(),
                         shape.size(), element);
}

// A tensor of strings; the library keeps them in objects of its own.
Value string_tensor(const Environment& environment, const std::vector<std::string_view>& texts, const Dims& shape) {
    auto value = create<Value>(api().CreateTensorAsOrtValue, environment.allocator(), shape.data(), shape.size(),
                               ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING);
    for (std::size_t index = 0; index < texts.size(); ++index) {
        char* buffer = nullptr;
        check(api().GetResizedStringTensorElementBuffer(value.get(), index, texts[index].size(), &buffer));
        std::ranges::copy(texts[index], buffer);
    }
    return value;
}

Dims shape_of(const OrtValue* value) {
    const auto info = create<ShapeInfo>(api().GetTensorTypeAndShape, value);
    std::size_t rank = 0;
    check(api().GetDimensionsCount(info.get(), &rank));
    Dims shape(rank);
    if (rank > 0) check(api().GetDimensions(info.get(), shape.data(), rank));
    return shape;
}

const void* data_of(OrtValue* value) {
    void* data = nullptr;
    check(api().GetTensorMutableData(value, &data));
    return data;
}

// An output of a run.
struct Bound {
    std::size_t index = 0;            // in the configuration
    std::optional<Dims> declared{};   // the shape that the model declares, where it follows from the inputs
    void* target = nullptr;           // its place in the response, where that shape is believed
    bool placed = false;              // whether the library writes there itself
};

}  // namespace

// One run of a batch. The library's binding of the instance is empty before and after it.
class OnnxInstance::Execution {
public:
    Execution(OnnxInstance& instance, Batch& batch)
        : shared_(instance.shared_),
          config_(shared_.config),
          session_(instance.session_->get()),
          options_(instance.run_options_.get()),
          binding_(instance.binding_.get()),
          batch_(batch) {}
    ~Execution() {
        api().ClearBoundInputs(binding_);
        api().ClearBoundOutputs(binding_);
    }
    Execution(const Execution&) = delete;
    Execution& operator=(const Execution&) = delete;

    void run() {
        bind_inputs();
        const bool in_place = bind_outputs(true);
        batch_.begin_compute();
        try {
            compute();
        } catch (const Error& error) {
            if (!in_place || error.code() == TRITONSERVER_ERROR_CANCELLED) throw;
            compute_again();
        }
        batch_.end_compute();
        deliver();
    }

private:
    void bind_inputs() {
        input_shapes_.resize(config_.inputs.size());
        for (std::size_t index = 0; index < config_.inputs.size(); ++index) {
            const TensorConfig& tensor = config_.inputs[index];
            if (!batch_.has_input(tensor.name)) continue;
            const InputPlan& plan = shared_.plan.inputs[index];
            const backend_kit::Tensor given = batch_.gather(tensor.name);
            Dims& shape = input_shapes_[index];
            if (!plan.scalar) shape = given.shape;
            // The library does not write to inputs.
            void* data = const_cast<std::byte*>(given.data);
            const Value value = given.datatype == TRITONSERVER_TYPE_BYTES
                                    ? string_tensor(shared_.environment, given.strings(), shape)
                                    : tensor_over(shared_.environment, data, given.size, shape, plan.element);
            check(api().BindInput(binding_, tensor.name.c_str(), value.get()));
        }
    }

    // Binds the outputs that are wanted: to the response's memory where their shape is known and `in_place` allows it,
    // else to memory that the library makes. Returns whether any has a place in the response.
    bool bind_outputs(bool in_place) {
        api().ClearBoundOutputs(binding_);
        bound_.clear();
        bool any = false;
        for (std::size_t index = 0; index < config_.outputs.size(); ++index) {
            const TensorConfig& tensor = config_.outputs[index];
            if (!batch_.wants(tensor.name)) continue;
            Bound& bound = bound_.emplace_back(Bound{index, declared_shape(index)});
            if (in_place) bind_in_place(bound);
            if (!bound.placed) {
                check(api().BindOutputToDevice(binding_, tensor.name.c_str(), shared_.environment.cpu()));
            }
            any = any || bound.target != nullptr;
        }
        return any;
    }

    std::optional<Dims> declared_shape(std::size_t index) const {
        const OutputPlan& plan = shared_.plan.outputs[index];
        if (!plan.shape) return std::nullopt;
        Dims shape;
        for (const DimSource& source : *plan.shape) {
            shape.push_back(source.input ? input_shapes_[*source.input][source.dim] : source.fixed);
        }
        return shape;
    }

    void bind_in_place(Bound& bound) {
        const TensorConfig& tensor = config_.outputs[bound.index];
        if (!bound.declared || shared_.declared[bound.index] != Declared::true_so_far) return;
        if (batch_.request_count() != 1 || tensor.datatype == TRITONSERVER_TYPE_BYTES) return;
        const Dims given = given_shape(*bound.declared, shared_.plan.outputs[bound.index]);
        if (!fits(tensor, given)) return;
        const std::size_t size = backend_kit::tensor_size(tensor.datatype, given);
        if (size == 0) return;
        bound.target = batch_.output_buffer(tensor.name, tensor.datatype, given);
        const auto address = reinterpret_cast<std::uintptr_t>(bound.target);
        if (address % backend_kit::datatype_size(tensor.datatype) != 0) return;
        const Value value = tensor_over(shared_.environment, bound.target, size, *bound.declared,
                                        shared_.plan.outputs[bound.index].element);
        check(api().BindOutput(binding_, tensor.name.c_str(), value.get()));
        bound.placed = true;
    }

    // Whether the configuration and the batch allow an output this shape.
    bool fits(const TensorConfig& tensor, const Dims& shape) const {
        Dims expected = tensor.model_dims();
        if (config_.batching()) expected.insert(expected.begin(), batch_.size());
        return std::ranges::equal(expected, shape, [](std::int64_t size, std::int64_t given) {
            return size == given || size == -1;
        });
    }

    // Runs the model and takes over what has no place yet.
    void compute() {
        {
            const CancelWatch::Run watched(shared_.watch, batch_, options_);
            try {
                check(api().RunWithBinding(session_, options_, binding_));
            } catch (const Error&) {
                if (!watched.stopped()) throw;
                throw Error(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled while it ran");
            }
        }
        if (!std::ranges::all_of(bound_, &Bound::placed)) take_results();
    }

    void take_results() {
        OrtValue** values = nullptr;
        std::size_t count = 0;
        check(api().GetBoundOutputValues(binding_, shared_.environment.allocator(), &values, &count));
        results_.clear();
        for (std::size_t number = 0; number < count; ++number) results_.emplace_back(values[number]);
        if (values != nullptr) check(api().AllocatorFree(shared_.environment.allocator(), values));
        for (std::size_t number = 0; number < count; ++number) compare(bound_[number], results_[number].get());
    }

    // Learns from a result whether the shape that the model declares is to be believed.
    void compare(const Bound& bound, const OrtValue* value) {
        if (!bound.declared || bound.placed) return;
        std::atomic<Declared>& state = shared_.declared[bound.index];
        const Dims shape = shape_of(value);
        if (shape == *bound.declared) {
            Declared untried = Declared::untried;
            state.compare_exchange_strong(untried, Declared::true_so_far);
            return;
        }
        const std::string text = "output '" + config_.outputs[bound.index].name + "' of model " + config_.name +
                                 ": the model declares the shape " + backend_kit::shape_text(*bound.declared) +
                                 " and gave " + backend_kit::shape_text(shape);
        const Declared before = state.exchange(Declared::untrue);
        if (before != Declared::untrue) backend_kit::log_warning(text + "; it is copied from now on");
        if (bound.target == nullptr) return;
        const Dims given = given_shape(shape, shared_.plan.outputs[bound.index]);
        lie_ = fits(config_.outputs[bound.index], given) ? text + "; send the request again, it will be served" : text;
    }

    // What went wrong may come of an output with another shape than the model declares: a run without any output bound
    // shows it. The response cannot take that output any more, since it has memory of the wrong size.
    void compute_again() {
        const std::vector<Bound> before = std::exchange(bound_, {});
        bind_outputs(false);
        for (Bound& bound : bound_) {
            const auto same = std::ranges::find(before, bound.index, &Bound::index);
            bound.target = same == before.end() ? nullptr : same->target;
        }
        compute();
    }

    void deliver() {
        if (!lie_.empty()) throw backend_kit::unavailable(lie_);
        for (std::size_t number = 0; number < results_.size(); ++number) {
            const Bound& bound = bound_[number];
            if (!bound.placed) scatter(bound, results_[number].get());
        }
    }

    void scatter(const Bound& bound, OrtValue* value) {
        const TensorConfig& tensor = config_.outputs[bound.index];
        const Dims shape = given_shape(shape_of(value), shared_.plan.outputs[bound.index]);
        if (bound.target != nullptr) {
            std::memcpy(bound.target, data_of(value), backend_kit::tensor_size(tensor.datatype, shape));
            return;
        }
        if (tensor.datatype == TRITONSERVER_TYPE_BYTES) {
            scatter_strings(tensor, shape, value);
            return;
        }
        batch_.scatter(tensor.name, tensor.datatype, shape, data_of(value));
    }

    void scatter_strings(const TensorConfig& tensor, const Dims& shape, const OrtValue* value) {
        const std::size_t count = backend_kit::element_count(shape);
        std::size_t size = 0;
        check(api().GetStringTensorDataLength(value, &size));
        std::string bytes(size, '\0');
        std::vector<std::size_t> offsets(count);
        check(api().GetStringTensorContent(value, bytes.data(), size, offsets.data(), count));
        offsets.push_back(size);
        std::vector<std::string_view> texts;
        texts.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            texts.emplace_back(bytes.data() + offsets[i], offsets[i + 1] - offsets[i]);
        }
        batch_.scatter(tensor.name, shape, texts);
    }

    static Dims given_shape(Dims shape, const OutputPlan& plan) {
        if (shape.empty() && plan.may_be_scalar) return {1};
        return shape;
    }

    Shared& shared_;
    const backend_kit::ModelConfig& config_;
    OrtSession* session_;
    OrtRunOptions* options_;
    OrtIoBinding* binding_;
    Batch& batch_;
    std::vector<Dims> input_shapes_;
    std::vector<Bound> bound_;
    std::vector<Value> results_;  // one for each of bound_
    std::string lie_;             // of the model, about an output that has a place in the response
};

OnnxInstance::OnnxInstance(Shared& shared, std::shared_ptr<Session> session, const Settings& settings)
    : shared_(shared),
      session_(std::move(session)),
      run_options_(create<RunOptions>(api().CreateRunOptions)),
      binding_(create<IoBinding>(api().CreateIoBinding, session_->get())) {
    // What goes wrong in a run is told to the client, so the log need not have it too.
    check(api().RunOptionsSetRunLogSeverityLevel(run_options_.get(), ORT_LOGGING_LEVEL_FATAL));
    if (settings.arena_shrinkage) {
        check(api().AddRunConfigEntry(run_options_.get(), "memory.enable_memory_arena_shrinkage",
                                      settings.arena_shrinkage->c_str()));
    }
}

void OnnxInstance::run(Batch& batch) { Execution(*this, batch).run(); }

}  // namespace onnx_backend
