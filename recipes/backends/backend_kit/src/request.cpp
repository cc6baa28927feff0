#include "request.hpp"

#include <algorithm>
#include <chrono>
#include <string>

namespace backend_kit {
namespace {

bool in_cpu_memory(TRITONSERVER_MemoryType type) noexcept {
    return type == TRITONSERVER_MEMORY_CPU || type == TRITONSERVER_MEMORY_CPU_PINNED;
}

void check_dims(const TensorConfig& tensor, Shape shape, std::int64_t max_batch_size) {
    constexpr std::int64_t any = -1;
    const std::vector<std::int64_t>& dims = tensor.model_dims();
    const std::size_t batch = max_batch_size > 0 ? 1 : 0;
    if (shape.size() != batch + dims.size() || !dims_fit(dims, shape.subspan(batch))) {
        throw invalid_argument("the shape is " + shape_text(shape) + ", expected " +
                               shape_text(with_batch(batch == 1 ? &any : nullptr, dims)));
    }
    if (batch == 1 && shape[0] > max_batch_size) {
        throw invalid_argument("the batch size is " + std::to_string(shape[0]) + ", the maximum is " +
                               std::to_string(max_batch_size));
    }
}

void check_size(const TensorConfig& tensor, Shape shape, std::size_t size, std::span<const Segment> segments) {
    if (tensor.datatype == TRITONSERVER_TYPE_BYTES) {
        check_bytes(segments, element_count(shape));
        return;
    }
    const std::size_t expected = tensor_size(tensor.datatype, shape);
    if (size != expected) {
        throw invalid_argument(std::to_string(size) + " bytes of data were sent, but shape " + shape_text(shape) +
                               " of type " + std::string(datatype_name(tensor.datatype)) + " has " +
                               std::to_string(expected));
    }
}

std::string size_text(Shape shape, std::size_t size) {
    return "shape " + shape_text(shape) + " and " + std::to_string(size) + " bytes";
}

std::string input_text(std::string_view name, const ModelConfig& config) {
    const TensorConfig* tensor = config.input(name);
    return std::string(tensor == nullptr ? "" : tensor->role()) + "input '" + std::string(name) + "' of model " +
           config.name;
}

// The shape of a state: for the first request of a sequence the server gives that of the configuration with 1 for what
// is open, whatever shape the initial state has.
Shape state_shape(const TensorConfig& tensor, Shape given, std::size_t size, const ModelConfig& config) {
    const auto state = std::ranges::find(config.sequence_batching->states, tensor.name,
                                         [](const SequenceState& each) { return std::string_view(each.input.name); });
    if (!state->initial_shape || tensor.datatype == TRITONSERVER_TYPE_BYTES ||
        size == tensor_size(tensor.datatype, given) || size != tensor_size(tensor.datatype, *state->initial_shape)) {
        return given;
    }
    return *state->initial_shape;
}

}  // namespace

bool dims_fit(std::span<const std::int64_t> dims, Shape shape) noexcept {
    return std::ranges::equal(
        dims, shape, [](std::int64_t expected, std::int64_t given) { return expected == -1 || expected == given; });
}

std::vector<std::int64_t> with_batch(const std::int64_t* batch, const std::vector<std::int64_t>& dims) {
    std::vector<std::int64_t> result(dims);
    if (batch != nullptr) {
        result.insert(result.begin(), *batch);
    }
    return result;
}

std::uint64_t now_ns() noexcept {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

Request::Request(TRITONBACKEND_Request* request) : request_(request) {
    check(TRITONBACKEND_ResponseNew(&response_, request));
}

Request::~Request() {
    if (response_ != nullptr) {
        log_if_error(TRITONBACKEND_ResponseDelete(response_), "delete a response");
    }
}

bool Request::cancelled() const {
    bool result = false;
    check(TRITONBACKEND_RequestIsCancelled(request_, &result));
    return result;
}

void Request::check_wanted() const {
    if (cancelled()) {
        throw Error(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled");
    }
}

void Request::read(const ModelConfig& config) {
    std::uint32_t count = 0;
    check(TRITONBACKEND_RequestInputCount(request_, &count));
    inputs_.resize(config.all_inputs.size());
    segments_.reserve(count);
    for (std::uint32_t index = 0; index < count; ++index) {
        read_input(config, index);
    }
    for (std::size_t index = 0; index < inputs_.size(); ++index) {
        if (!inputs_[index].present && !config.all_inputs[index].optional) {
            throw invalid_argument(input_text(config.all_inputs[index].name, config) + " is missing");
        }
    }
    if (size_ < 0) {
        size_ = 1;
    }
    read_outputs(config);
}

void Request::read_input(const ModelConfig& config, std::uint32_t index) {
    TRITONBACKEND_Input* input = nullptr;
    const char* name = nullptr;
    DataType datatype = TRITONSERVER_TYPE_INVALID;
    const std::int64_t* dims = nullptr;
    std::uint32_t dims_count = 0;
    std::uint32_t buffer_count = 0;
    check(TRITONBACKEND_RequestInputByIndex(request_, index, &input));
    check(TRITONBACKEND_InputProperties(input, &name, &datatype, &dims, &dims_count, nullptr, &buffer_count));
    const TensorConfig* tensor = config.input(name);
    try {
        if (tensor == nullptr) {
            throw invalid_argument("the configuration has no such input");
        }
        if (datatype != tensor->datatype) {
            throw invalid_argument("the type is " + std::string(datatype_name(datatype)) + ", expected " +
                                   std::string(datatype_name(tensor->datatype)));
        }
        InputPart& part = inputs_[static_cast<std::size_t>(tensor - config.all_inputs.data())];
        part.present = true;
        part.shape = {dims, dims_count};
        check_dims(*tensor, part.shape, config.max_batch_size);
        const std::int64_t rows = config.batching() ? part.shape[0] : 1;
        if (size_ >= 0 && rows != size_) {
            throw invalid_argument("the batch size is " + std::to_string(rows) + ", another input has " +
                                   std::to_string(size_));
        }
        size_ = rows;
        read_segments(input, buffer_count, part);
        if (tensor->control && datatype == TRITONSERVER_TYPE_BYTES && part.count == 1) {
            // Triton has room for the longest correlation ID there.
            segments_.back() = first_element(segments_.back());
            part.size = segments_.back().size;
        }
        if (tensor->state) {
            part.shape = state_shape(*tensor, part.shape, part.size, config);
        }
        check_size(*tensor, part.shape, part.size, segments(part));
    } catch (const Error& error) {
        throw Error(error.code(), input_text(name, config) + ": " + error.what());
    }
}

void Request::read_segments(TRITONBACKEND_Input* input, std::uint32_t count, InputPart& part) {
    part.first = segments_.size();
    for (std::uint32_t index = 0; index < count; ++index) {
        const void* data = nullptr;
        std::uint64_t size = 0;
        TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
        std::int64_t type_id = 0;
        check(TRITONBACKEND_InputBuffer(input, index, &data, &size, &type, &type_id));
        if (!in_cpu_memory(type)) {
            throw unsupported("the data is in memory that the CPU cannot read");
        }
        if (size > 0) {
            segments_.push_back({static_cast<const std::byte*>(data), static_cast<std::size_t>(size)});
            part.size += static_cast<std::size_t>(size);
        }
    }
    part.count = segments_.size() - part.first;
}

void Request::read_outputs(const ModelConfig& config) {
    std::uint32_t count = 0;
    check(TRITONBACKEND_RequestOutputCount(request_, &count));
    wanted_.reserve(count);
    added_.reserve(count);
    for (std::uint32_t index = 0; index < count; ++index) {
        const char* name = nullptr;
        check(TRITONBACKEND_RequestOutputName(request_, index, &name));
        wanted_.emplace_back(name);
    }
    if (config.sequence_batching) {
        padding_ = wanted_.empty();
        states_.reserve(config.sequence_batching->states.size());
    }
}

bool Request::runs_with(const Request& other) const noexcept {
    for (std::size_t index = 0; index < inputs_.size(); ++index) {
        const InputPart& left = inputs_[index];
        const InputPart& right = other.inputs_[index];
        if (left.present != right.present) {
            return false;
        }
        if (left.present && !std::ranges::equal(left.shape.subspan(1), right.shape.subspan(1))) {
            return false;
        }
    }
    return true;
}

bool Request::wants(std::string_view output) const noexcept {
    return !failed() && !padding_ &&
           (wanted_.empty() || std::find(wanted_.begin(), wanted_.end(), output) != wanted_.end());
}

std::byte* Request::add_output(const TensorConfig& output, Shape shape, std::size_t size) {
    const auto old = std::ranges::find(added_, output.name, &Output::name);
    if (old != added_.end()) {
        if (old->given) {
            throw internal_error("output '" + output.name + "' was given twice");
        }
        if (!std::ranges::equal(old->shape, shape) || old->size != size) {
            throw internal_error("output '" + output.name + "' was computed again and has " + size_text(shape, size) +
                                 ", before it had " + size_text(old->shape, old->size));
        }
        old->given = true;
        return old->data;
    }
    Output& added = added_.emplace_back(Output{output.name, {shape.begin(), shape.end()}, size, nullptr, true});
    TRITONBACKEND_Output* created = nullptr;
    check(TRITONBACKEND_ResponseOutput(response_, &created, output.name.c_str(), output.datatype, shape.data(),
                                       static_cast<std::uint32_t>(shape.size())));
    void* buffer = nullptr;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    std::int64_t type_id = 0;
    check(TRITONBACKEND_OutputBuffer(created, &buffer, size, &type, &type_id));
    if (!in_cpu_memory(type)) {
        throw unsupported("output '" + output.name + "' has to go to memory that the CPU cannot write");
    }
    added.data = static_cast<std::byte*>(buffer);
    return added.data;
}

std::byte* Request::add_state(const TensorConfig& output, Shape shape, std::size_t size) {
    auto state = std::ranges::find(states_, output.name, &State::name);
    if (state == states_.end()) {
        state = states_.insert(state, State{output.name, nullptr, false});
    }
    if (state->given) {
        throw internal_error("state output '" + output.name + "' was given twice");
    }
    check(TRITONBACKEND_StateNew(&state->handle, request_, output.name.c_str(), output.datatype, shape.data(),
                                 static_cast<std::uint32_t>(shape.size())));
    void* buffer = nullptr;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    std::int64_t type_id = 0;
    check(TRITONBACKEND_StateBuffer(state->handle, &buffer, size, &type, &type_id));
    if (!in_cpu_memory(type)) {
        throw unsupported("state output '" + output.name + "' has to go to memory that the CPU cannot write");
    }
    state->given = true;
    return static_cast<std::byte*>(buffer);
}

void Request::restart() noexcept {
    for (State& state : states_) {
        state.given = false;
    }
    for (Output& output : added_) {
        output.given = false;
    }
}

void Request::check_states(const ModelConfig& config) const {
    if (!config.sequence_batching) {
        return;
    }
    for (const SequenceState& each : config.sequence_batching->states) {
        const auto state = std::ranges::find(states_, each.output.name, &State::name);
        if (state == states_.end() || !state->given) {
            throw internal_error("model " + config.name + " gave no state output '" + each.output.name + "'");
        }
    }
}

void Request::update_states() {
    for (const State& state : states_) {
        check(TRITONBACKEND_StateUpdate(state.handle));
    }
}

void Request::check_complete(const ModelConfig& config) const {
    if (padding_) {
        return;
    }
    check_states(config);
    const auto check_given = [&](std::string_view name) {
        const auto output = std::ranges::find(added_, name, &Output::name);
        if (output == added_.end() || !output->given) {
            throw internal_error("model " + config.name + " gave no output '" + std::string(name) + "'");
        }
    };
    if (wanted_.empty()) {
        for (const TensorConfig& output : config.outputs) {
            check_given(output.name);
        }
    }
    for (const std::string_view name : wanted_) {
        check_given(name);
    }
}

void Request::send(const ModelConfig& config) noexcept {
    if (!failed()) {
        try {
            check_complete(config);
            update_states();
        } catch (...) {
            fail(current_error());
        }
    }
    TRITONSERVER_Error* error = failed() ? error_->to_triton() : nullptr;
    log_if_error(
        TRITONBACKEND_ResponseSend(std::exchange(response_, nullptr), TRITONSERVER_RESPONSE_COMPLETE_FINAL, error),
        "send a response");
    if (error != nullptr) {
        TRITONSERVER_ErrorDelete(error);
    }
}

void Request::release(TRITONBACKEND_ModelInstance* instance, const Times& times) noexcept {
    log_if_error(TRITONBACKEND_ModelInstanceReportStatistics(instance, request_, !failed(), times.exec_start,
                                                             times.compute_start, times.compute_end, times.exec_end),
                 "report statistics of a request");
    log_if_error(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL), "release a request");
}

}  // namespace backend_kit
