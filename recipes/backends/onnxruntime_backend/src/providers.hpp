// Execution providers: those of the library, and how a configuration asks for one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api.hpp"
#include "backend_kit/config.hpp"

namespace onnx_backend {

// The library's name of the provider that a configuration calls `name`: coreml, CoreML and CoreMLExecutionProvider all
// become CoreMLExecutionProvider. Nothing if the library lacks it.
std::optional<std::string> provider_of(std::string_view name, const std::vector<std::string>& available);

// Adds the provider with its options to a session. Throws backend_kit::Error that lists the available ones if the
// library lacks it, or with ONNX Runtime's message if it refuses an option.
void add_provider(OrtSessionOptions* options, const backend_kit::Accelerator& accelerator,
                  const std::vector<std::string>& available);

}  // namespace onnx_backend
