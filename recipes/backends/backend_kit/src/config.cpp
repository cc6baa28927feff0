#include "backend_kit/config.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <utility>

#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"
#include "reading.hpp"
#include "sequence.hpp"

namespace backend_kit {
namespace {

// Fields that choose a scheduler; the server takes one of them.
constexpr std::array<std::string_view, 3> schedulers{"dynamic_batching", "sequence_batching", "ensemble_scheduling"};

char lower(char character) noexcept {
    return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(), [](char character) { return lower(character); });
    return result;
}

TensorConfig read_tensor(const JsonView& view) {
    TensorConfig result;
    result.name = view.string_or("name", "");
    if (const auto datatype = view.find("data_type")) {
        result.datatype = read_datatype(*datatype);
    }
    if (const auto dims = view.find("dims")) {
        result.dims = read_dims(*dims);
    }
    if (const auto reshape = view.find("reshape")) {
        const auto shape = reshape->find("shape");
        result.reshape = shape ? read_dims(*shape) : std::vector<std::int64_t>{};
    }
    result.optional = view.boolean_or("optional", false);
    result.ragged = view.boolean_or("allow_ragged_batch", false);
    result.shape_tensor = view.boolean_or("is_shape_tensor", false);
    return result;
}

std::vector<TensorConfig> read_tensors(const JsonView& root, std::string_view key) {
    std::vector<TensorConfig> result;
    if (const auto list = root.find(key)) {
        for (const JsonView& item : list->items()) {
            result.push_back(read_tensor(item));
        }
    }
    return result;
}

InstanceGroup read_instance_group(const JsonView& view) {
    constexpr std::array<std::string_view, 4> kinds{"KIND_AUTO", "KIND_CPU", "KIND_GPU", "KIND_MODEL"};
    InstanceGroup result;
    result.name = view.string_or("name", "");
    result.count = view.integer_or("count", 1);
    if (const auto kind = view.find("kind")) {
        const auto found = std::find(kinds.begin(), kinds.end(), kind->string());
        if (found == kinds.end()) {
            throw invalid_argument(kind->path() + " is '" + kind->string() + "', which is not an instance kind");
        }
        result.kind = static_cast<TRITONSERVER_InstanceGroupKind>(found - kinds.begin());
    }
    return result;
}

std::vector<std::string> read_op_libraries(const JsonView& root) {
    std::vector<std::string> result;
    const auto operations = root.find("model_operations");
    if (const auto list = operations ? operations->find("op_library_filename") : std::nullopt) {
        for (const JsonView& item : list->items()) {
            result.push_back(item.string());
        }
    }
    return result;
}

StringMap read_strings(const JsonView& view) {
    StringMap result;
    for (const auto& [name, value] : view.members()) {
        result.emplace(name, value.string());
    }
    return result;
}

std::vector<Accelerator> read_accelerators(const JsonView& view, std::string_view key) {
    std::vector<Accelerator> result;
    if (const auto list = view.find(key)) {
        for (const JsonView& item : list->items()) {
            const auto parameters = item.find("parameters");
            result.push_back({item.string_or("name", ""), parameters ? read_strings(*parameters) : StringMap{}});
        }
    }
    return result;
}

void read_optimization(const JsonView& root, ModelConfig& config) {
    const auto optimization = root.find("optimization");
    if (!optimization) {
        return;
    }
    if (const auto graph = optimization->find("graph")) {
        config.graph_level = graph->integer_or("level", 0);
    }
    if (const auto accelerators = optimization->find("execution_accelerators")) {
        config.cpu_accelerators = read_accelerators(*accelerators, "cpu_execution_accelerator");
        config.gpu_accelerators = read_accelerators(*accelerators, "gpu_execution_accelerator");
    }
}

void read_config(const JsonView& root, ModelConfig& config) {
    config.name = root.string_or("name", "");
    config.backend = root.string_or("backend", "");
    config.platform = root.string_or("platform", "");
    config.default_model_filename = root.string_or("default_model_filename", "");
    config.max_batch_size = root.integer_or("max_batch_size", 0);
    config.inputs = read_tensors(root, "input");
    config.outputs = read_tensors(root, "output");
    if (const auto groups = root.find("instance_group")) {
        for (const JsonView& item : groups->items()) {
            config.instance_groups.push_back(read_instance_group(item));
        }
    }
    if (const auto parameters = root.find("parameters")) {
        for (const auto& [name, value] : parameters->members()) {
            config.parameters.emplace(name, value.string_or("string_value", ""));
        }
    }
    config.dynamic_batching = root.find("dynamic_batching").has_value();
    if (const auto sequences = root.find("sequence_batching")) {
        config.sequence_batching = read_sequence_batching(*sequences, config.batching());
    }
    if (const auto policy = root.find("model_transaction_policy")) {
        config.decoupled = policy->boolean_or("decoupled", false);
    }
    read_optimization(root, config);
    config.op_libraries = read_op_libraries(root);
    list_all_tensors(config);
}

Json dims_json(const std::vector<std::int64_t>& dims) {
    JsonArray result;
    for (const std::int64_t dimension : dims) {
        result.emplace_back(dimension);
    }
    return Json(std::move(result));
}

// The tensor as JSON, merged into the entry that the document already has of that name.
Json tensor_json(const TensorConfig& tensor, const Json* old_list) {
    Json result(JsonObject{});
    if (old_list != nullptr && old_list->array() != nullptr) {
        for (const Json& item : *old_list->array()) {
            const Json* name = item.find("name");
            if (name != nullptr && name->string() != nullptr && *name->string() == tensor.name) {
                result = item;
            }
        }
    }
    result.set("name", Json(tensor.name));
    result.set("data_type", Json(std::string(config_type_name(tensor.datatype))));
    result.set("dims", dims_json(tensor.dims));
    if (tensor.reshape) {
        Json shape;
        shape.set("shape", dims_json(*tensor.reshape));
        result.set("reshape", std::move(shape));
    }
    if (tensor.optional) {
        result.set("optional", Json(true));
    }
    return result;
}

Json tensors_json(const std::vector<TensorConfig>& tensors, const Json* old_list) {
    JsonArray result;
    for (const TensorConfig& tensor : tensors) {
        result.push_back(tensor_json(tensor, old_list));
    }
    return Json(std::move(result));
}

bool has_scheduler(const Json& document) {
    return std::ranges::any_of(schedulers, [&](std::string_view key) {
        const Json* scheduler = document.find(key);
        return scheduler != nullptr && !scheduler->is_null();
    });
}

constexpr std::string_view strict_parameters = "STRICT_PARAMETERS";

// How many letters differ, are missing or are too many; upper and lower case are the same.
std::size_t edits(std::string_view left, std::string_view right) {
    std::vector<std::size_t> row(right.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < left.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < right.size(); ++j) {
            const std::size_t changed = diagonal + (lower(left[i]) == lower(right[j]) ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

bool matches(std::string_view name, std::string_view pattern) noexcept {
    return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

}  // namespace

std::vector<std::int64_t> read_dims(const JsonView& view) {
    std::vector<std::int64_t> result;
    for (const JsonView& item : view.items()) {
        result.push_back(item.integer());
        if (result.back() < -1) {
            throw invalid_argument(item.path() + " is " + std::to_string(result.back()) + ", less than -1");
        }
    }
    return result;
}

DataType read_datatype(const JsonView& view) {
    const std::string& name = view.string();
    if (name == config_type_name(TRITONSERVER_TYPE_INVALID)) {
        return TRITONSERVER_TYPE_INVALID;  // left open, for auto-completion
    }
    try {
        return datatype_of_config(name);
    } catch (const Error& error) {
        throw invalid_argument(view.path() + ": " + error.what());
    }
}

void TensorConfig::set_model_shape(std::vector<std::int64_t> shape, bool batched) {
    dims = std::move(shape);
    reshape.reset();
    if (batched) {
        if (dims.empty()) {
            throw invalid_argument("'" + name + "' has no batch dimension");
        }
        dims.erase(dims.begin());
    }
    if (dims.empty()) {
        if (batched) {
            reshape.emplace();
        }
        dims = {1};
    }
}

ModelConfig ModelConfig::parse(std::string_view text) {
    ModelConfig config;
    config.document = Json::parse(text);
    try {
        read_config(JsonView(config.document, "config"), config);
    } catch (const Error& error) {
        throw invalid_argument("configuration of model " + config.name + ": " + error.what());
    }
    return config;
}

void ModelConfig::check_supported() const {
    for (const TensorConfig& tensor : inputs) {
        const std::string where = "input '" + tensor.name + "' of model " + name;
        if (tensor.ragged) {
            throw unsupported(where + " has allow_ragged_batch, which this backend does not support: requests of " +
                              "different shapes run one after the other without it");
        }
        if (tensor.shape_tensor) {
            throw unsupported(where + " is a shape tensor, which this backend does not support");
        }
    }
    for (const std::string_view key : {"batch_input", "batch_output"}) {
        const Json* list = document.find(key);
        if (list != nullptr && list->array() != nullptr && !list->array()->empty()) {
            throw unsupported("model " + name + " has " + std::string(key) + ", which this backend does not support");
        }
    }
    check_sequence_batching(*this);
}

const TensorConfig* find_tensor(const std::vector<TensorConfig>& tensors, std::string_view name) noexcept {
    for (const TensorConfig& tensor : tensors) {
        if (tensor.name == name) {
            return &tensor;
        }
    }
    return nullptr;
}

const TensorConfig* ModelConfig::input(std::string_view input_name) const noexcept {
    return find_tensor(all_inputs, input_name);
}

const TensorConfig* ModelConfig::output(std::string_view output_name) const noexcept {
    return find_tensor(all_outputs, output_name);
}

std::string ModelConfig::completed() const {
    Json result = document;
    result.set("max_batch_size", Json(max_batch_size));
    result.set("input", tensors_json(inputs, document.find("input")));
    result.set("output", tensors_json(outputs, document.find("output")));
    if (dynamic_batching && !has_scheduler(document)) {
        result.set("dynamic_batching", Json(JsonObject{}));
    }
    return result.text();
}

BackendConfig BackendConfig::parse(std::string_view text) {
    const Json document = Json::parse(text);
    const auto cmdline = JsonView(document, "backend configuration").find("cmdline");
    return {cmdline ? read_strings(*cmdline) : StringMap{}};
}

std::int64_t BackendConfig::default_max_batch_size() const {
    const auto found = settings.find("default-max-batch-size");
    if (found == settings.end()) {
        return 0;
    }
    std::int64_t result = 0;
    const std::string& text = found->second;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), result);
    if (fault != std::errc() || end != text.data() + text.size() || result < 0) {
        throw invalid_argument("setting default-max-batch-size: '" + text + "' is not a whole number of 0 or more");
    }
    return result;
}

std::string nearest(std::string_view name, std::span<const std::string_view> names) {
    constexpr std::size_t longest = 200;  // the effort grows with the product of the lengths
    std::string_view found;
    std::size_t least = std::min(name.size(), longest) / 3 + 1;
    for (const std::string_view each : names) {
        if (name.size() > longest || each.size() > longest) {
            continue;
        }
        if (const std::size_t distance = edits(name, each); distance < least) {
            found = each;
            least = distance;
        }
    }
    return std::string(found);
}

Parameters::Parameters(const ModelConfig& model, const BackendConfig& backend, std::string backend_name)
    : model_name_(model.name),
      backend_name_(std::move(backend_name)),
      parameters_(model.parameters),
      settings_(backend.settings) {}

std::optional<Parameters::Found> Parameters::find(std::string_view name) const {
    if (const auto found = parameters_.find(name); found != parameters_.end()) {
        return Found{"parameter " + std::string(name) + " of model " + model_name_, found->second};
    }
    const std::string setting = lower(name);
    if (const auto found = settings_.find(setting); found != settings_.end()) {
        return Found{"setting " + setting + " of backend " + backend_name_, found->second};
    }
    return std::nullopt;
}

void Parameters::refuse(std::string_view name, const std::string& complaint) const {
    const auto found = find(name);
    throw invalid_argument(found ? found->owner + ": '" + found->value + "' " + complaint
                                 : "parameter " + std::string(name) + " of model " + model_name_ + " is missing");
}

std::optional<std::string> Parameters::text(std::string_view name) const {
    auto found = find(name);
    return found ? std::optional(std::move(found->value)) : std::nullopt;
}

std::optional<bool> Parameters::boolean(std::string_view name) const {
    const auto found = find(name);
    if (!found) {
        return std::nullopt;
    }
    const std::string value = lower(found->value);
    if (value == "true" || value == "1" || value == "yes" || value == "on") {
        return true;
    }
    if (value == "false" || value == "0" || value == "no" || value == "off") {
        return false;
    }
    refuse(name, "is neither true nor false");
}

std::optional<std::int64_t> Parameters::integer(std::string_view name, std::int64_t least, std::int64_t most) const {
    const auto found = find(name);
    if (!found) {
        return std::nullopt;
    }
    std::int64_t value = 0;
    const std::string& text = found->value;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || end != text.data() + text.size() || value < least || value > most) {
        const std::string limit = most == INT64_MAX ? " or more" : " to " + std::to_string(most);
        refuse(name, "is not a whole number of " + std::to_string(least) + limit);
    }
    return value;
}

std::optional<std::string> Parameters::choice(std::string_view name, std::span<const std::string_view> choices) const {
    const auto found = find(name);
    if (!found) {
        return std::nullopt;
    }
    std::string listed;
    for (const std::string_view choice : choices) {
        if (lower(found->value) == lower(choice)) {
            return std::string(choice);
        }
        listed += (listed.empty() ? "" : ", ") + std::string(choice);
    }
    refuse(name, "is not one of " + listed);
}

std::string Parameters::unknown(std::string_view name, std::span<const std::string_view> known) const {
    const std::string text = "model " + model_name_ + ": the parameter " + std::string(name) + " has no effect; ";
    if (const std::string meant = nearest(name, known); !meant.empty()) {
        return text + "did you mean " + meant + "?";
    }
    std::string listed;
    for (const std::string_view each : known) {
        listed += (listed.empty() ? "" : ", ") + std::string(each);
    }
    return text + "this backend knows " + listed;
}

void Parameters::check_names(std::span<const std::string_view> known) const {
    const bool strict = boolean(strict_parameters).value_or(true);
    for (const auto& [name, value] : parameters_) {
        const bool fits =
            std::ranges::any_of(known, [&](std::string_view pattern) { return matches(name, pattern); });
        if (fits || name == strict_parameters) {
            continue;
        }
        const std::string complaint = unknown(name, known);
        if (strict) {
            throw invalid_argument(complaint + " (STRICT_PARAMETERS: false makes this a warning)");
        }
        log_warning(complaint);
    }
}

}  // namespace backend_kit
