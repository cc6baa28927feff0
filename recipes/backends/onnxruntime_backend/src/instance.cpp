#include "instance.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "backend_kit/datatype.hpp"
#include "backend_kit/log.hpp"
#include "results.hpp"

namespace onnx_backend {
namespace {

using backend_kit::Batch;
using backend_kit::Error;
using backend_kit::TensorConfig;

// A tensor of strings; the library keeps them in its own objects.
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

// An output of a run.
struct Bound {
    std::size_t index = 0;            // in the configuration
    std::size_t result = 0;           // of the run; the parts of an output share one
    std::optional<Dims> declared{};   // the shape that the model declares, if it follows from the inputs
    void* target = nullptr;           // its place in the response, if that shape is trusted
    bool placed = false;              // true if the library itself writes there
};

}  // namespace

// One run of a batch. The library's binding of the instance is empty before and after it.
class OnnxInstance::Execution {
public:
    Execution(OnnxInstance& instance, Batch& batch, const Inputs& inputs)
        : instance_(instance),
          shared_(instance.shared_),
          config_(shared_.config),
          binding_(instance.binding_.get()),
          batch_(batch),
          inputs_(inputs) {}
    ~Execution() {
        api().ClearBoundInputs(binding_);
        api().ClearBoundOutputs(binding_);
    }
    Execution(const Execution&) = delete;
    Execution& operator=(const Execution&) = delete;

    // With `in_place`, outputs may be computed in the response.
    void run(bool in_place) {
        bind_inputs();
        in_place = bind_outputs(in_place);
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
        for (std::size_t index = 0; index < config_.all_inputs.size(); ++index) {
            const std::optional<backend_kit::Tensor>& given = inputs_.tensors[index];
            if (!given) continue;
            const Dims& shape = inputs_.shapes[index];
            // The library does not write to inputs.
            void* data = const_cast<std::byte*>(given->data);
            const Value value = given->datatype == TRITONSERVER_TYPE_BYTES
                                    ? string_tensor(shared_.environment, given->strings(), shape)
                                    : tensor_over(shared_.environment, data, given->size, shape,
                                                  shared_.plan.inputs[index].element);
            check(api().BindInput(binding_, config_.all_inputs[index].name.c_str(), value.get()));
        }
    }

    // Binds the requested outputs: to the response's memory if their shape is known and `in_place` allows it, otherwise
    // to memory that the library allocates. Returns whether any has a place in the response.
    bool bind_outputs(bool in_place) {
        api().ClearBoundOutputs(binding_);
        bound_.clear();
        bool any = false;
        std::vector<std::string_view> sources;
        for (std::size_t index = 0; index < config_.all_outputs.size(); ++index) {
            if (!batch_.wants(config_.all_outputs[index].name)) continue;
            const OutputPlan& plan = shared_.plan.outputs[index];
            const auto result = static_cast<std::size_t>(std::ranges::find(sources, plan.source) - sources.begin());
            Bound& bound = bound_.emplace_back(Bound{index, result, plan.declared(inputs_.shapes)});
            if (result < sources.size()) continue;
            sources.push_back(plan.source);
            if (in_place) bind_in_place(bound);
            if (!bound.placed) {
                check(api().BindOutputToDevice(binding_, plan.source.c_str(), shared_.environment.cpu()));
            }
            any = any || bound.target != nullptr;
        }
        return any;
    }

    void bind_in_place(Bound& bound) {
        const TensorConfig& tensor = config_.all_outputs[bound.index];
        if (!bound.declared || shared_.declared[bound.index] != Declared::true_so_far) return;
        if (batch_.request_count() != 1 || tensor.datatype == TRITONSERVER_TYPE_BYTES) return;
        const Dims given = shared_.plan.outputs[bound.index].given(*bound.declared);
        if (!fits(tensor, given)) return;
        const std::size_t size = backend_kit::tensor_size(tensor.datatype, given);
        if (size == 0) return;
        bound.target = batch_.output_buffer(tensor.name, tensor.datatype, given);
        if (bound.target == nullptr) return;
        const auto address = reinterpret_cast<std::uintptr_t>(bound.target);
        if (address % backend_kit::datatype_size(tensor.datatype) != 0) return;
        const Value value = tensor_over(shared_.environment, bound.target, size, *bound.declared,
                                        shared_.plan.outputs[bound.index].element);
        check(api().BindOutput(binding_, tensor.name.c_str(), value.get()));
        bound.placed = true;
    }

    // Returns whether the configuration and the batch allow an output this shape.
    bool fits(const TensorConfig& tensor, const Dims& shape) const {
        Dims expected = tensor.model_dims();
        if (config_.batching()) expected.insert(expected.begin(), batch_.size());
        return std::ranges::equal(expected, shape, [](std::int64_t size, std::int64_t given) {
            return size == given || size == -1;
        });
    }

    // Runs the model and copies the outputs that have no place yet.
    void compute() {
        instance_.compute(batch_, binding_);
        if (!std::ranges::all_of(bound_, &Bound::placed)) take_results();
    }

    void take_results() {
        OrtValue** values = nullptr;
        std::size_t count = 0;
        check(api().GetBoundOutputValues(binding_, shared_.environment.allocator(), &values, &count));
        results_.clear();
        for (std::size_t number = 0; number < count; ++number) results_.emplace_back(values[number]);
        if (values != nullptr) check(api().AllocatorFree(shared_.environment.allocator(), values));
        for (const Bound& bound : bound_) compare(bound, results_[bound.result].get());
    }

    // Learns from a result whether the model's declared shape can be trusted.
    void compare(const Bound& bound, const OrtValue* value) {
        if (!bound.declared || bound.placed) return;
        std::atomic<Declared>& state = shared_.declared[bound.index];
        const Dims shape = shape_of(value);
        if (shape == *bound.declared) {
            Declared untried = Declared::untried;
            state.compare_exchange_strong(untried, Declared::true_so_far);
            return;
        }
        const std::string text = "output '" + config_.all_outputs[bound.index].name + "' of model " + config_.name +
                                 ": the model declares the shape " + backend_kit::shape_text(*bound.declared) +
                                 " and gave " + backend_kit::shape_text(shape);
        const Declared before = state.exchange(Declared::untrue);
        if (before != Declared::untrue) backend_kit::log_warning(text + "; it is copied from now on");
        if (bound.target == nullptr) return;
        const Dims given = shared_.plan.outputs[bound.index].given(shape);
        const bool served = fits(config_.all_outputs[bound.index], given);
        lie_ = served ? text + "; send the request again, it will be served" : text;
    }

    // Finds the reason as OnnxInstance::run() does. The response cannot take an output of another shape any more,
    // since its memory has the wrong size.
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
        if (results_.empty()) return;
        for (const Bound& bound : bound_) {
            if (!bound.placed) scatter(bound, results_[bound.result].get());
        }
    }

    void scatter(const Bound& bound, OrtValue* value) {
        const TensorConfig& tensor = config_.all_outputs[bound.index];
        if (shared_.plan.outputs[bound.index].part != OutputPart::whole) {
            scatter_maps(bound, value);
            return;
        }
        const Dims shape = shared_.plan.outputs[bound.index].given(shape_of(value));
        if (bound.target != nullptr) {
            std::memcpy(bound.target, data_of(value), backend_kit::tensor_size(tensor.datatype, shape));
            return;
        }
        if (tensor.datatype == TRITONSERVER_TYPE_BYTES) {
            const Texts texts(value, backend_kit::element_count(shape));
            batch_.scatter(tensor.name, shape, texts.views());
            return;
        }
        batch_.scatter(tensor.name, tensor.datatype, shape, data_of(value));
    }

    MapRows map_rows(const Bound& bound, const OrtValue* sequence) const {
        const TensorConfig& tensor = config_.all_outputs[bound.index];
        const Dims& dims = tensor.model_dims();
        const std::int64_t columns = dims.empty() ? 0 : std::max<std::int64_t>(dims.back(), 0);
        try {
            return {sequence, shared_.plan.outputs[bound.index].part, shared_.environment.allocator(), columns};
        } catch (const Error& error) {
            throw Error(error.code(), "output '" + tensor.name + "' of model " + config_.name + ": " + error.what());
        }
    }

    void scatter_maps(const Bound& bound, const OrtValue* sequence) {
        const TensorConfig& tensor = config_.all_outputs[bound.index];
        const MapRows rows = map_rows(bound, sequence);
        if (tensor.datatype != TRITONSERVER_TYPE_BYTES) {
            const std::string bytes = rows.bytes(backend_kit::datatype_size(tensor.datatype));
            batch_.scatter(tensor.name, tensor.datatype, rows.shape(), bytes.data());
            return;
        }
        const std::vector<Texts> texts = rows.texts();
        std::vector<std::string_view> views;
        for (const Texts& row : texts) std::ranges::copy(row.views(), std::back_inserter(views));
        batch_.scatter(tensor.name, rows.shape(), views);
    }

    OnnxInstance& instance_;
    Shared& shared_;
    const backend_kit::ModelConfig& config_;
    OrtIoBinding* binding_;
    Batch& batch_;
    const Inputs& inputs_;
    std::vector<Bound> bound_;
    std::vector<Value> results_;  // in the order in which they were bound; empty if all are placed
    std::string lie_;             // a wrong declaration of the model, for an output that has a place in the response
};

OnnxInstance::OnnxInstance(Shared& shared, std::shared_ptr<Session> session, const Settings& settings)
    : shared_(shared),
      session_(std::move(session)),
      run_options_(create<RunOptions>(api().CreateRunOptions)),
      binding_(create<IoBinding>(api().CreateIoBinding, session_->get())),
      kept_(shared.environment, shared.config, shared.plan, session_->get()) {
    // The client gets the error of a run, so the log need not have it too.
    check(api().RunOptionsSetRunLogSeverityLevel(run_options_.get(), ORT_LOGGING_LEVEL_FATAL));
    if (settings.arena_shrinkage) {
        check(api().AddRunConfigEntry(run_options_.get(), "memory.enable_memory_arena_shrinkage",
                                      settings.arena_shrinkage->c_str()));
    }
}

void OnnxInstance::run(Batch& batch) {
    const Inputs inputs = gather(batch);
    const bool kept = keeps(batch) && kept_.take(inputs);
    if (kept && run_kept(batch)) return;
    // The cause may be an output with another shape than the model declares: a run without any output bound shows it,
    // and answers the requests.
    Execution(*this, batch, inputs).run(!kept);
}

Inputs OnnxInstance::gather(Batch& batch) const {
    const std::size_t count = shared_.config.all_inputs.size();
    Inputs inputs{std::vector<std::optional<backend_kit::Tensor>>(count), std::vector<Dims>(count)};
    for (std::size_t index = 0; index < count; ++index) {
        const std::string& name = shared_.config.all_inputs[index].name;
        if (!batch.has_input(name)) continue;
        inputs.tensors[index] = batch.gather(name);
        if (!shared_.plan.inputs[index].scalar) inputs.shapes[index] = inputs.tensors[index]->shape;
    }
    return inputs;
}

// Returns whether the kept binding may run the batch, if its tensors are small. A provider with its own memory would
// copy inputs when they are bound, not when it runs.
bool OnnxInstance::keeps(const Batch& batch) const {
    if (session_->accelerated()) return false;
    for (std::size_t index = 0; index < shared_.declared.size(); ++index) {
        if (shared_.declared[index] != Declared::true_so_far) return false;
        if (!batch.wants(shared_.config.all_outputs[index].name)) return false;
    }
    return true;
}

// Runs with the inputs in the kept binding. Returns false if that fails.
bool OnnxInstance::run_kept(Batch& batch) {
    batch.begin_compute();
    try {
        compute(batch, kept_.get());
    } catch (const Error& error) {
        if (error.code() == TRITONSERVER_ERROR_CANCELLED) throw;
        return false;
    }
    batch.end_compute();
    kept_.give(batch);
    return true;
}

void OnnxInstance::compute(const Batch& batch, OrtIoBinding* binding) {
    const CancelWatch::Run watched(shared_.watch, batch, run_options_.get());
    try {
        check(api().RunWithBinding(session_->get(), run_options_.get(), binding));
    } catch (const Error&) {
        if (!watched.stopped()) throw;
        throw Error(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled while it ran");
    }
}

}  // namespace onnx_backend
