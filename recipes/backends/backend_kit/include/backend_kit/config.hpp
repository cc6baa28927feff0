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
    std::optional<std::vector<std::int64_t>> reshape{};  // what the model itself takes or gives, where it differs
    bool optional = false;                               // inputs only, as are the next two
    bool ragged = false;
    bool shape_tensor = false;

    // The dimensions that the backend sees: the server turns the client's shape into `reshape` and back.
    const std::vector<std::int64_t>& model_dims() const noexcept { return reshape ? *reshape : dims; }

    // Sets dims and reshape, for completion, from the whole shape that the model has, its first dimension being the
    // batch if `batched`. What is left without dimensions gets the form that Triton wants: dims [1], which it reshapes
    // to none only behind a batch dimension. Throws Error (invalid argument) when there is no batch dimension.
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
    bool sequence_batching = false;
    bool decoupled = false;
    std::vector<Accelerator> cpu_accelerators;
    std::vector<Accelerator> gpu_accelerators;
    std::optional<std::int64_t> graph_level;
    std::vector<std::string> op_libraries;  // model_operations.op_library_filename
    Json document;                          // all of it, as the server wrote it

    // Reads the JSON of TRITONBACKEND_ModelConfig. Throws Error (invalid argument) that names model and field.
    static ModelConfig parse(std::string_view text);

    // Refuses what a batch made by this kit cannot serve: ragged inputs, shape tensors, batch inputs and outputs.
    // Throws Error (unsupported).
    void check_supported() const;

    bool batching() const noexcept { return max_batch_size > 0; }
    const TensorConfig* input(std::string_view input_name) const noexcept;
    const TensorConfig* output(std::string_view output_name) const noexcept;

    // The document with inputs, outputs and max_batch_size of this object, and with dynamic_batching if it is set here
    // and the document has no scheduler, for TRITONBACKEND_ModelSetConfig.
    std::string completed() const;
};

// Settings from `--backend-config` and the server's own, by name: the object `cmdline` of the backend configuration.
struct BackendConfig {
    StringMap settings;

    // Throws Error (invalid argument) when it is no such JSON.
    static BackendConfig parse(std::string_view text);

    // The batch size that auto-completion may assume (`default-max-batch-size`), 0 when the server gives none.
    std::int64_t default_max_batch_size() const;
};

// The name that a misspelt one is closest to; empty when none is close.
std::string nearest(std::string_view name, std::span<const std::string_view> names);

// Typed access to the parameters of a model; where the model has none of a name, the setting of the backend with the
// name in lower case counts. Each error is of the form
//   parameter INTRA_OP_THREAD_COUNT of model m: 'abc' is not a whole number of 0 or more
//   setting intra_op_thread_count of backend b: ...
class Parameters {
public:
    Parameters(const ModelConfig& model, const BackendConfig& backend, std::string backend_name);

    // The text as given; nothing when neither has it.
    std::optional<std::string> text(std::string_view name) const;
    // true, false, 1 or 0, yes or no, on or off; in any case of letters.
    std::optional<bool> boolean(std::string_view name) const;
    // A whole number of `least` or more (and at most `most`).
    std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most = INT64_MAX) const;
    // One of the choices, in any case of letters; the result is written as in `choices`.
    std::optional<std::string> choice(std::string_view name, std::span<const std::string_view> choices) const;

    // Throws Error (invalid argument) for a parameter of the model that is none of `known`, with the nearest of them or
    // their list; one that ends in `*` stands for all names that start so. Where STRICT_PARAMETERS is false there is a
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
