#include "sequence.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"
#include "reading.hpp"

namespace backend_kit {
namespace {

constexpr std::array<std::string_view, 4> control_kinds{"CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END",
                                                        "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_CORRID"};

ControlKind read_control_kind(const JsonView& view) {
    const auto kind = view.find("kind");
    if (!kind) {
        return ControlKind::start;  // the first one, which the server need not write
    }
    const auto found = std::ranges::find(control_kinds, kind->string());
    if (found == control_kinds.end()) {
        throw invalid_argument(kind->path() + " is '" + kind->string() + "', which is no kind of control");
    }
    return static_cast<ControlKind>(found - control_kinds.begin());
}

// The type that the server makes the control of: by the list with the two values, or for correlation IDs as written.
DataType read_control_type(const JsonView& view, ControlKind kind) {
    if (kind == ControlKind::correlation_id) {
        const auto datatype = view.find("data_type");
        return datatype ? read_datatype(*datatype) : TRITONSERVER_TYPE_INVALID;
    }
    constexpr std::array<std::pair<std::string_view, DataType>, 3> lists{
        {{"int32_false_true", TRITONSERVER_TYPE_INT32},
         {"fp32_false_true", TRITONSERVER_TYPE_FP32},
         {"bool_false_true", TRITONSERVER_TYPE_BOOL}}};
    for (const auto& [name, datatype] : lists) {
        const auto list = view.find(name);
        if (list && !list->items().empty()) {
            return datatype;
        }
    }
    return TRITONSERVER_TYPE_INVALID;
}

SequenceControl read_control(const JsonView& view) {
    const auto list = view.find("control");
    const std::vector<JsonView> controls = list ? list->items() : std::vector<JsonView>{};
    SequenceControl result;
    result.input.name = view.string_or("name", "");
    if (controls.size() != 1) {
        throw invalid_argument(view.path() + ": the input '" + result.input.name + "' needs one control and has " +
                               std::to_string(controls.size()));
    }
    result.kind = read_control_kind(controls[0]);
    result.input.datatype = read_control_type(controls[0], result.kind);
    result.input.dims = {1};
    result.input.control = true;
    if (result.input.datatype == TRITONSERVER_TYPE_INVALID) {
        throw invalid_argument(controls[0].path() + ": the control input '" + result.input.name + "' has no type");
    }
    return result;
}

SequenceState read_state(const JsonView& view, bool batching) {
    SequenceState result;
    TensorConfig& input = result.input;
    input.name = view.string_or("input_name", "");
    if (const auto datatype = view.find("data_type")) {
        input.datatype = read_datatype(*datatype);
    }
    if (const auto dims = view.find("dims")) {
        input.dims = read_dims(*dims);
    }
    input.state = true;
    result.output = input;
    result.output.name = view.string_or("output_name", "");
    const auto initial = view.find("initial_state");
    const std::vector<JsonView> all = initial ? initial->items() : std::vector<JsonView>{};
    if (!all.empty()) {
        const auto dims = all[0].find("dims");
        result.initial_shape = dims ? read_dims(*dims) : std::vector<std::int64_t>{};
        if (batching) {
            result.initial_shape->insert(result.initial_shape->begin(), 1);
        }
    }
    return result;
}

std::string state_text(const SequenceState& state, const ModelConfig& config) {
    return "state '" + state.input.name + "' (output '" + state.output.name + "') of model " + config.name;
}

void refuse_duplicates(const ModelConfig& config) {
    for (std::size_t index = 0; index < config.all_inputs.size(); ++index) {
        const TensorConfig& tensor = config.all_inputs[index];
        const TensorConfig* first = config.input(tensor.name);
        if (first != &tensor) {
            throw invalid_argument(std::string(tensor.role()) + "input '" + tensor.name + "' of model " + config.name +
                                   " is listed twice, also as " + std::string(first->role()) + "input");
        }
    }
}

// The server finds the input of a state by the place of the output's name among all of them in alphabetical order
// (SequenceStates::OutputState), so states are mixed up when the names of their inputs are in another order.
void check_order(const ModelConfig& config) {
    std::vector<const SequenceState*> states;
    for (const SequenceState& state : config.sequence_batching->states) {
        states.push_back(&state);
    }
    std::ranges::sort(states, {}, [](const SequenceState* state) { return state->output.name; });
    for (std::size_t index = 1; index < states.size(); ++index) {
        const SequenceState& before = *states[index - 1];
        const SequenceState& state = *states[index];
        if (before.output.name == state.output.name) {
            throw invalid_argument(state_text(state, config) + " has the output of another state");
        }
        if (before.input.name > state.input.name) {
            throw unsupported(state_text(state, config) + " and " + state_text(before, config) +
                              ": Triton mixes up states unless the names of their inputs are in the same alphabetical "
                              "order as those of their outputs; rename one");
        }
    }
}

void check_state(const ModelConfig& config, const SequenceState& state) {
    const std::string where = state_text(state, config);
    if (state.input.datatype == TRITONSERVER_TYPE_INVALID) {
        throw invalid_argument(where + " has no data_type");
    }
    const auto listed = std::ranges::find(config.outputs, state.output.name, &TensorConfig::name);
    if (listed == config.outputs.end()) {
        return;
    }
    if (listed->datatype != state.output.datatype || listed->model_dims() != state.output.dims) {
        throw invalid_argument(where + ": the output has type " + std::string(config_type_name(listed->datatype)) +
                               " and dims " + shape_text(listed->model_dims()) + ", the state " +
                               std::string(config_type_name(state.output.datatype)) + " and " +
                               shape_text(state.output.dims));
    }
}

// Fields that change what the server does with a state, or with the sequence.
void refuse_unsupported(const ModelConfig& config) {
    const JsonView view(*config.document.find("sequence_batching"), "sequence_batching");
    for (const std::string_view field : {"iterative_sequence", "generative_sequence"}) {
        if (view.boolean_or(field, false)) {
            throw unsupported("model " + config.name + " has sequence_batching." + std::string(field) +
                              ", which this backend does not support");
        }
    }
    const auto states = view.find("state");
    for (const JsonView& state : states ? states->items() : std::vector<JsonView>{}) {
        for (const std::string_view field : {"use_same_buffer_for_input_output", "use_growable_memory"}) {
            if (state.boolean_or(field, false)) {
                const std::string name = state.string_or("input_name", "");
                throw unsupported("state '" + name + "' of model " + config.name + " has " +
                                  std::string(field) +
                                  ", which this backend does not support: a request that fails must leave the state as "
                                  "it was");
            }
        }
    }
}

}  // namespace

SequenceBatching read_sequence_batching(const JsonView& view, bool batching) {
    SequenceBatching result;
    if (const auto controls = view.find("control_input")) {
        for (const JsonView& item : controls->items()) {
            result.controls.push_back(read_control(item));
        }
    }
    if (const auto states = view.find("state")) {
        for (const JsonView& item : states->items()) {
            result.states.push_back(read_state(item, batching));
        }
    }
    return result;
}

void list_all_tensors(ModelConfig& config) {
    config.all_inputs = config.inputs;
    config.all_outputs = config.outputs;
    if (!config.sequence_batching) {
        return;
    }
    for (const SequenceControl& control : config.sequence_batching->controls) {
        config.all_inputs.push_back(control.input);
    }
    for (const SequenceState& state : config.sequence_batching->states) {
        config.all_inputs.push_back(state.input);
        const auto listed = std::ranges::find(config.all_outputs, state.output.name, &TensorConfig::name);
        if (listed == config.all_outputs.end()) {
            config.all_outputs.push_back(state.output);
        } else {
            listed->state = true;
        }
    }
}

void check_sequence_batching(const ModelConfig& config) {
    if (!config.sequence_batching) {
        return;
    }
    refuse_unsupported(config);
    refuse_duplicates(config);
    check_order(config);
    const bool told = std::ranges::any_of(config.sequence_batching->controls, [](const SequenceControl& control) {
        return control.kind == ControlKind::start;
    });
    for (const SequenceState& state : config.sequence_batching->states) {
        check_state(config, state);
        if (!state.initial_shape && !told && state.input.datatype != TRITONSERVER_TYPE_BYTES) {
            log_warning(state_text(state, config) + " has no initial_state, and the model is not told where a sequence "
                        "starts: a first request finds any bytes there");
        }
    }
}

void check_sequence_outputs(const ModelConfig& config) {
    if (config.sequence_batching && config.outputs.empty()) {
        throw invalid_argument("the configuration of model " + config.name + " has sequence_batching and no outputs");
    }
}

}  // namespace backend_kit
