// Code that both kinds of models need around a run.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <mutex>
#include <optional>

#include "network.hpp"

namespace torch_backend {

// For one run: no gradients, the thread count of the model, and exclusive use of the Metal device, whose memory is
// returned at the end if the model asks for that.
class RunScope {
public:
    RunScope(const Settings& settings, at::Device device);
    RunScope(const RunScope&) = delete;
    RunScope& operator=(const RunScope&) = delete;
    ~RunScope();

private:
    bool cleans_cache_;
    c10::InferenceMode inference_;  // if off, it switches gradients on
    c10::NoGradGuard no_grad_;
    std::unique_lock<std::mutex> metal_;
};

// The device for a setting. Throws backend_kit::Error (unavailable) if it does not exist.
at::Device resolve(Device device);

}  // namespace torch_backend
