// The parameters of a model and of the backend's command line.
#pragma once

#include <optional>
#include <string>

#include "backend_kit/config.hpp"

namespace torch_backend {

enum class Device { cpu, mps, best };

struct Settings {
    std::optional<Device> device;
    std::optional<int> intra_op_threads;
    std::optional<int> inter_op_threads;
    bool inference_mode = true;
    bool optimized_execution = true;
    std::optional<bool> tensor_expr_fusion;
    std::optional<bool> jit_profiling;
    std::optional<bool> jit_executor;
    std::optional<bool> weight_sharing;
    bool cache_cleaning = false;
    std::string method = "forward";  // of a TorchScript module
};

// Reads the parameters of a model over the settings of the backend. Throws backend_kit::Error for an invalid value, for
// a parameter that only upstream's backend can serve, and for an unknown name.
Settings read_settings(const backend_kit::ModelConfig& model, const backend_kit::BackendConfig& backend,
                       const std::string& backend_name);

}  // namespace torch_backend
