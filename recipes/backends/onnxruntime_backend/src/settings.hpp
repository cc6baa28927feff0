// Settings from a model's configuration and the backend's command line that control how ONNX Runtime runs it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api.hpp"
#include "backend_kit/backend.hpp"
#include "backend_kit/files.hpp"
#include "runtime.hpp"

namespace onnx_backend {

struct Settings {
    ExecutionMode execution_mode = ORT_SEQUENTIAL;
    GraphOptimizationLevel level = ORT_ENABLE_ALL;
    std::optional<int> intra_op_threads;
    std::optional<int> inter_op_threads;
    bool memory_arena = true;
    bool memory_pattern = true;
    bool share_session = false;
    std::optional<std::string> arena_shrinkage;
    std::optional<std::string> profile_prefix;
    std::vector<std::pair<std::string, std::string>> session_entries;  // names begin with "session."
};

// Reads the settings of a model over those of the backend. The files that the model's own name are in its places; those
// that the backend's name may be anywhere. Throws backend_kit::Error for an invalid value or an unknown name.
Settings read_settings(const backend_kit::ModelConfig& model, const backend_kit::BackendInfo& backend,
                       const backend_kit::Places& places);

// The thread pool for all sessions, if the backend's command line asks for one. Throws as read_settings does.
std::optional<ThreadPools> read_thread_pools(const backend_kit::BackendInfo& backend);

}  // namespace onnx_backend
