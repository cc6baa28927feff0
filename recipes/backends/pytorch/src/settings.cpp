#include "settings.hpp"

#include <array>
#include <string_view>

namespace torch_backend {
namespace {

constexpr std::array<std::string_view, 8> known{
    "DEVICE",
    "INTRA_OP_THREAD_COUNT",
    "INTER_OP_THREAD_COUNT",
    "INFERENCE_MODE",
    "DISABLE_OPTIMIZED_EXECUTION",
    "ENABLE_TENSOR_EXPR_FUSION",
    "ENABLE_JIT_PROFILING",
    "ENABLE_WEIGHT_SHARING",
};

constexpr std::array<std::string_view, 3> devices{"cpu", "mps", "auto"};

}  // namespace

Settings read_settings(const backend_kit::ModelConfig& model, const backend_kit::BackendConfig& backend,
                       const std::string& backend_name) {
    constexpr std::int64_t most_threads = 4096;
    const backend_kit::Parameters parameters(model, backend, backend_name);
    const auto threads = [&](std::string_view name) -> std::optional<int> {
        const auto count = parameters.integer(name, 1, most_threads);
        return count ? std::optional(static_cast<int>(*count)) : std::nullopt;
    };
    Settings settings;
    if (const auto name = parameters.choice("DEVICE", devices)) {
        settings.device = *name == "cpu" ? Device::cpu : *name == "mps" ? Device::mps : Device::best;
    }
    settings.intra_op_threads = threads("INTRA_OP_THREAD_COUNT");
    settings.inter_op_threads = threads("INTER_OP_THREAD_COUNT");
    settings.inference_mode = parameters.boolean("INFERENCE_MODE").value_or(true);
    settings.optimized_execution = !parameters.boolean("DISABLE_OPTIMIZED_EXECUTION").value_or(false);
    settings.tensor_expr_fusion = parameters.boolean("ENABLE_TENSOR_EXPR_FUSION");
    settings.jit_profiling = parameters.boolean("ENABLE_JIT_PROFILING");
    settings.weight_sharing = parameters.boolean("ENABLE_WEIGHT_SHARING");
    parameters.check_names(known);
    return settings;
}

}  // namespace torch_backend
