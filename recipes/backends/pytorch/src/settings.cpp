#include "settings.hpp"

#include <array>
#include <string_view>

namespace torch_backend {
namespace {

constexpr std::array<std::string_view, 19> known{
    "DEVICE",
    "DISABLE_CUDNN",
    "DISABLE_OPTIMIZED_EXECUTION",
    "ENABLE_CACHE_CLEANING",
    "ENABLE_JIT_EXECUTOR",
    "ENABLE_JIT_PROFILING",
    "ENABLE_NVFUSER",
    "ENABLE_TENSOR_EXPR_FUSION",
    "ENABLE_TENSOR_FUSER",
    "ENABLE_WEIGHT_SHARING",
    "INFERENCE_MODE",
    "INTER_OP_THREAD_COUNT",
    "INTRA_OP_THREAD_COUNT",
    "MODULE_METHOD_NAME",
    "NUM_INTEROP_THREADS",
    "NUM_THREADS",
    "OPERATOR_LIBRARIES",
    "TORCH_COMPILE_OPTIONAL_PARAMETERS",
    "TORCH_ENABLE_NVFUSER",
};

constexpr std::array<std::string_view, 3> devices{"cpu", "mps", "auto"};

using backend_kit::Parameters;

// Parameters of upstream's backend for what is not here. A value that asks for nothing else than what happens anyway is
// taken.
void refuse_others(const Parameters& parameters) {
    for (const char* name : {"ENABLE_NVFUSER", "TORCH_ENABLE_NVFUSER"}) {
        if (parameters.boolean(name).value_or(false)) parameters.refuse(name, "cannot be: nvFuser needs a CUDA device");
    }
    parameters.boolean("DISABLE_CUDNN");  // there is no cuDNN, so either value is true to the word
    if (parameters.text("TORCH_COMPILE_OPTIONAL_PARAMETERS")) {
        parameters.refuse("TORCH_COMPILE_OPTIONAL_PARAMETERS",
                          "cannot be: torch.compile needs Python; compile the model beforehand with "
                          "torch._inductor.aoti_compile_and_package");
    }
}

// A count of threads by either of its names; upstream has another for models that are run by Python.
std::optional<int> threads(const Parameters& parameters, std::string_view name, std::string_view other) {
    constexpr std::int64_t most = 4096;
    const auto ours = parameters.integer(name, 1, most);
    const auto theirs = parameters.integer(other, 1, most);
    if (ours && theirs && *ours != *theirs) {
        parameters.refuse(other, "contradicts " + std::string(name) + ", which is the same");
    }
    const auto count = ours ? ours : theirs;
    return count ? std::optional(static_cast<int>(*count)) : std::nullopt;
}

// Upstream's name for the same setting.
std::optional<bool> tensor_expr_fusion(const Parameters& parameters) {
    const auto ours = parameters.boolean("ENABLE_TENSOR_EXPR_FUSION");
    const auto theirs = parameters.boolean("ENABLE_TENSOR_FUSER");
    if (ours && theirs && *ours != *theirs) {
        parameters.refuse("ENABLE_TENSOR_FUSER", "contradicts ENABLE_TENSOR_EXPR_FUSION, which is the same");
    }
    return ours ? ours : theirs;
}

}  // namespace

Settings read_settings(const backend_kit::ModelConfig& model, const backend_kit::BackendConfig& backend,
                       const std::string& backend_name) {
    const Parameters parameters(model, backend, backend_name);
    Settings settings;
    if (const auto name = parameters.choice("DEVICE", devices)) {
        settings.device = *name == "cpu" ? Device::cpu : *name == "mps" ? Device::mps : Device::best;
    }
    settings.intra_op_threads = threads(parameters, "INTRA_OP_THREAD_COUNT", "NUM_THREADS");
    settings.inter_op_threads = threads(parameters, "INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS");
    settings.inference_mode = parameters.boolean("INFERENCE_MODE").value_or(true);
    settings.optimized_execution = !parameters.boolean("DISABLE_OPTIMIZED_EXECUTION").value_or(false);
    settings.tensor_expr_fusion = tensor_expr_fusion(parameters);
    settings.jit_executor = parameters.boolean("ENABLE_JIT_EXECUTOR");
    settings.jit_profiling = parameters.boolean("ENABLE_JIT_PROFILING");
    settings.weight_sharing = parameters.boolean("ENABLE_WEIGHT_SHARING");
    settings.cache_cleaning = parameters.boolean("ENABLE_CACHE_CLEANING").value_or(false);
    settings.method = parameters.text("MODULE_METHOD_NAME").value_or("forward");
    refuse_others(parameters);
    parameters.check_names(known);
    return settings;
}

}  // namespace torch_backend
