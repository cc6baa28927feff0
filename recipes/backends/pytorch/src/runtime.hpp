// What both kinds of models do around a run.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <mutex>
#include <optional>

#include "network.hpp"

namespace torch_backend {

// For the time of one run: no gradients, the thread count of the model, and the Metal device for one run alone, its
// memory given back at the end if the model asks for that.
class RunScope {
public:
    RunScope(const Settings& settings, at::Device device);
    RunScope(const RunScope&) = delete;
    RunScope& operator=(const RunScope&) = delete;
    ~RunScope();

private:
    bool cleans_cache_;
    c10::InferenceMode inference_;  // when off, it switches gradients on
    c10::NoGradGuard no_grad_;
    std::unique_lock<std::mutex> metal_;
};

// The device of a setting. Throws backend_kit::Error (unavailable) when it is not there.
at::Device resolve(Device device);

}  // namespace torch_backend
