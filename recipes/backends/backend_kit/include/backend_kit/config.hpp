// A model's configuration (model_config.proto of triton-inference-server/common, in its JSON form), the settings given
// on the server's command line, and typed access to both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend_kit/datatype.hpp"
#include "backend_kit/json.hpp"

namespace backend_kit {

using StringMap = std::map<std::string, std::string, std::less<>>;

// An input or an output of a model.
struct TensorConfig {
    std::string name;
    DataType datatype = TRITONSERVER_TYPE_INVALID;
    std::vector<std::int64_t> dims;                      // without the batch dimension; -1 is any size
    std::optional<std::vector<std::int64_t>> reshape{};  // the model's own shape, if it differs
    bool optional = false;                               // inputs only, like the next two
    bool ragged = false;
    bool shape_tensor = false;
    bool control = false;  // inputs only: the server's sequence batcher makes it
    bool state = false;    // the server keeps it from one request of a sequence to the next

    // "control ", "state " or nothing, for messages: in front of "input" or "output".
    std::string_view role() const noexcept { return control ? "control " : state ? "state " : ""; }

    // The dimensions that the backend uses: the server converts between the client's shape and `reshape`.
    const std::vector<std::int64_t>& model_dims() const noexcept { return reshape ? *reshape : dims; }

    // Sets dims and reshape, for completion, from the model's whole shape, whose first dimension is the batch if
    // `batched`. A shape without other dimensions gets the form that Triton requires: dims [1], which it reshapes
    // to none only behind a batch dimension. Throws Error (invalid argument) if there is no batch dimension.
    void set_model_shape(std::vector<std::int64_t> shape, bool batched);
};

struct InstanceGroup {
    std::string name;
    TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
    std::int64_t count = 1;
};

struct Accelerator {
    std::string name;
    StringMap parameters;
};

// What a control tells the model of its request.
enum class ControlKind { start, end, ready, correlation_id };

struct SequenceControl {
    ControlKind kind = ControlKind::start;
    TensorConfig input;  // of dims [1]
};

// Kept by the server for each sequence: an input of the next request is what the model gave as output for the last one.
struct SequenceState {
    TensorConfig input;
    TensorConfig output;
    // The dims of initial_state with the batch dimension, where it has any: the server takes an open dimension for 1.
    std::optional<std::vector<std::int64_t>> initial_shape;
};

struct SequenceBatching {
    std::vector<SequenceControl> controls;
    std::vector<SequenceState> states;
};

struct ModelConfig {
    std::string name;
    std::string backend;
    std::string platform;
    std::string default_model_filename;
    std::int64_t max_batch_size = 0;  // 0: no batch dimension
    std::vector<TensorConfig> inputs;
    std::vector<TensorConfig> outputs;
    std::vector<InstanceGroup> instance_groups;
    StringMap parameters;
    bool dynamic_batching = false;
    std::optional<SequenceBatching> sequence_batching;
    bool decoupled = false;
    std::vector<Accelerator> cpu_accelerators;
    std::vector<Accelerator> gpu_accelerators;
    std::optional<std::int64_t> graph_level;
    std::vector<std::string> op_libraries;  // model_operations.op_library_filename
    // All inputs of the model: inputs, controls and states; and all its outputs: outputs, and states that are not
    // outputs. They are as parse() found them: the server hands over a completed configuration again.
    std::vector<TensorConfig> all_inputs;
    std::vector<TensorConfig> all_outputs;
    Json document;  // the whole configuration, as the server wrote it

    // Reads the JSON of TRITONBACKEND_ModelConfig. Throws Error (invalid argument) that names model and field.
    static ModelConfig parse(std::string_view text);

    // Refuses what a batch made by this kit cannot serve: ragged inputs, shape tensors, batch inputs and outputs, some
    // of sequence batching. Throws Error (unsupported or invalid argument).
    void check_supported() const;

    bool batching() const noexcept { return max_batch_size > 0; }
    // One of all_inputs or all_outputs; null when there is none of the name.
    const TensorConfig* input(std::string_view input_name) const noexcept;
    const TensorConfig* output(std::string_view output_name) const noexcept;

    // The document with inputs, outputs and max_batch_size of this object, for TRITONBACKEND_ModelSetConfig. Has
    // dynamic_batching if it is set here and the document has no scheduler.
    std::string completed() const;
};

// Settings from `--backend-config` and the server's own, by name: the object `cmdline` of the backend configuration.
struct BackendConfig {
    StringMap settings;

    // Throws Error (invalid argument) for any other JSON.
    static BackendConfig parse(std::string_view text);

    // The batch size that auto-completion may assume (`default-max-batch-size`), 0 when the server gives none.
    std::int64_t default_max_batch_size() const;
};

// The name that is nearest to a misspelt one; empty if none is near.
std::string nearest(std::string_view name, std::span<const std::string_view> names);

// Typed access to the parameters of a model. If the model does not set one, the setting of the backend with the name in
// lower case counts. Each error has the form
//   parameter INTRA_OP_THREAD_COUNT of model m: 'abc' is not a whole number of 0 or more
//   setting intra_op_thread_count of backend b: ...
class Parameters {
public:
    Parameters(const ModelConfig& model, const BackendConfig& backend, std::string backend_name);

    // The text as given; nothing if it is set in neither.
    std::optional<std::string> text(std::string_view name) const;
    // true, false, 1 or 0, yes or no, on or off; in upper or lower case.
    std::optional<bool> boolean(std::string_view name) const;
    // A whole number of `least` or more (and at most `most`).
    std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most = INT64_MAX) const;
    // One of the choices, in upper or lower case; the result is written as in `choices`.
    std::optional<std::string> choice(std::string_view name, std::span<const std::string_view> choices) const;

    // Throws Error (invalid argument) for a parameter of the model that is not in `known`, with the nearest of them or
    // their list; a name that ends in `*` matches all names with that prefix. If STRICT_PARAMETERS is false, it logs a
    // warning for each instead. STRICT_PARAMETERS itself is known to every backend.
    void check_names(std::span<const std::string_view> known) const;

    // An error about the value of a parameter in the form above; `complaint` follows "'value' ".
    [[noreturn]] void refuse(std::string_view name, const std::string& complaint) const;

private:
    struct Found {
        std::string owner;  // "parameter X of model m"
        std::string value;
    };
    std::optional<Found> find(std::string_view name) const;
    std::string unknown(std::string_view name, std::span<const std::string_view> known) const;

    std::string model_name_;
    std::string backend_name_;
    StringMap parameters_;
    StringMap settings_;
};

}  // namespace backend_kit
