// A model that ONNX Runtime has loaded.
#pragma once

#include <string>
#include <vector>

#include "backend_kit/config.hpp"
#include "ports.hpp"
#include "runtime.hpp"
#include "settings.hpp"

namespace onnx_backend {

// The source of a session.
struct SessionSource {
    std::string path;                       // of the model
    std::string label;                      // for messages, such as "model m"
    Settings settings;
    std::vector<std::string> op_libraries;  // paths of libraries with custom operators
    std::vector<backend_kit::Accelerator> accelerators;
};

class Session {
public:
    // Loads the model and logs how many nodes each execution provider took. Throws backend_kit::Error.
    Session(const Environment& environment, const SessionSource& source, const std::string& name);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    OrtSession* get() const noexcept { return handle_.get(); }

    // Returns whether a provider other than the CPU's takes part; it may have memory of its own.
    bool accelerated() const noexcept { return accelerated_; }

private:
    const Environment& environment_;
    std::string label_;
    bool accelerated_;
    bool profiling_;
    SessionHandle handle_;
};

}  // namespace onnx_backend
