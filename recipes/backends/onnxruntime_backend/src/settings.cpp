#include "settings.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace onnx_backend {
namespace {

using backend_kit::ModelConfig;
using backend_kit::Parameters;

constexpr std::string_view session_prefix = "session.";
constexpr std::array<std::string_view, 9> known{
    "execution_mode",
    "intra_op_thread_count",
    "inter_op_thread_count",
    "enable_mem_arena",
    "enable_mem_pattern",
    "memory.enable_memory_arena_shrinkage",
    "share_session_between_instances",
    "profile_file_prefix",
    "session.*",
};

// Parameters of upstream's backend for CUDA.
constexpr std::array<std::string_view, 4> cuda_parameters{
    "arena_extend_strategy",
    "cudnn_conv_algo_search",
    "do_copy_in_default_stream",
    "gpu_mem_limit",
};

// Gives the reason, which is better than the nearest name. Without strict parameters they are warned of like others.
void refuse_cuda(const Parameters& parameters) {
    if (!parameters.boolean("STRICT_PARAMETERS").value_or(true)) return;
    for (const std::string_view name : cuda_parameters) {
        if (parameters.text(name)) parameters.refuse(name, "is for CUDA, which this backend does not run on");
    }
}

std::optional<int> threads(const Parameters& parameters, std::string_view name) {
    constexpr std::int64_t most = 4096;
    const auto count = parameters.integer(name, 0, most);
    return count ? std::optional(static_cast<int>(*count)) : std::nullopt;
}

// The library accepts any text and then refuses it in each run, so it is checked here: the CPU's is the only arena.
std::optional<std::string> arena_shrinkage(const Parameters& parameters, bool has_arena) {
    constexpr std::string_view name = "memory.enable_memory_arena_shrinkage";
    auto value = parameters.text(name);
    if (value && !has_arena) parameters.refuse(name, "needs an arena, but enable_mem_arena is false");
    if (value && *value != "cpu" && *value != "cpu:0") parameters.refuse(name, "is neither cpu nor cpu:0");
    return value;
}

// The numbers that upstream's backend accepts.
GraphOptimizationLevel level_of(const ModelConfig& model) {
    switch (model.graph_level.value_or(0)) {
        case -1:
            return ORT_ENABLE_BASIC;
        case 0:
            return ORT_ENABLE_ALL;
        case 1:
            return ORT_ENABLE_EXTENDED;
        case 2:
            return ORT_DISABLE_ALL;
        default:
            throw backend_kit::invalid_argument("optimization.graph.level of model " + model.name + ": " +
                                                std::to_string(*model.graph_level) +
                                                " is not one of -1 (basic), 0 (all), 1 (extended), 2 (none)");
    }
}

// The session entries of ONNX Runtime that name a file to read or write.
constexpr std::array<std::string_view, 4> file_entries{
    "session.collect_node_memory_stats_to_file",
    "session.moe_expert_counter_state_file",
    "session.node_partition_config_file",
    "session.optimized_model_filepath",
};

using Entries = std::vector<std::pair<std::string, std::string>>;

Entries session_entries(const backend_kit::StringMap& values) {
    Entries entries;
    for (const auto& [name, value] : values) {
        if (name.starts_with(session_prefix)) entries.emplace_back(name, value);
    }
    return entries;
}

// The entries of a model, which its places limit. Later libraries may have more entries that name files.
Entries placed_entries(const ModelConfig& model, const backend_kit::Places& places) {
    Entries entries = session_entries(model.parameters);
    for (auto& [name, value] : entries) {
        if (std::ranges::find(file_entries, name) != file_entries.end()) {
            value = places.writable(value, "parameter " + name + " of model " + model.name);
        } else if (value.find('/') != std::string::npos) {
            throw backend_kit::invalid_argument("parameter " + name + " of model " + model.name + ": '" + value +
                                                "' may name a file; a value with a slash has to come from the "
                                                "server's command line");
        }
    }
    return entries;
}

std::optional<std::string> profile_prefix(const Parameters& parameters, const ModelConfig& model,
                                          const backend_kit::Places& places) {
    constexpr std::string_view name = "profile_file_prefix";
    const auto prefix = parameters.text(name);
    if (!prefix || !model.parameters.contains(name)) return prefix;
    return places.writable(*prefix, "parameter " + std::string(name) + " of model " + model.name);
}

}  // namespace

Settings read_settings(const ModelConfig& model, const backend_kit::BackendInfo& backend,
                       const backend_kit::Places& places) {
    const Parameters parameters(model, backend.config, backend.name);
    Settings settings;
    if (parameters.integer("execution_mode", 0, 1) == 1) settings.execution_mode = ORT_PARALLEL;
    settings.level = level_of(model);
    settings.intra_op_threads = threads(parameters, "intra_op_thread_count");
    settings.inter_op_threads = threads(parameters, "inter_op_thread_count");
    settings.memory_arena = parameters.boolean("enable_mem_arena").value_or(true);
    settings.memory_pattern = parameters.boolean("enable_mem_pattern").value_or(true);
    settings.share_session = parameters.boolean("share_session_between_instances").value_or(false);
    settings.arena_shrinkage = arena_shrinkage(parameters, settings.memory_arena);
    settings.profile_prefix = profile_prefix(parameters, model, places);
    // The model's own come last: ONNX Runtime uses the last value of a name.
    settings.session_entries = session_entries(backend.config.settings);
    std::ranges::move(placed_entries(model, places), std::back_inserter(settings.session_entries));
    refuse_cuda(parameters);
    parameters.check_names(known);
    return settings;
}

std::optional<ThreadPools> read_thread_pools(const backend_kit::BackendInfo& backend) {
    const Parameters parameters({}, backend.config, backend.name);
    if (!parameters.boolean("enable-global-threadpool").value_or(false)) return std::nullopt;
    return ThreadPools{threads(parameters, "intra_op_thread_count").value_or(0),
                       threads(parameters, "inter_op_thread_count").value_or(0)};
}

}  // namespace onnx_backend
