// The minimal call of ONNX Runtime: a session from INPUT__0 to OUTPUT__0, floats, whose tensors are created and bound
// in advance. The library is found and called through the sources of the backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <vector>

#include "api.hpp"
#include "library.hpp"

namespace bench {

using namespace onnx_backend;

inline void log(void*, OrtLoggingLevel, const char*, const char*, const char*, const char* message) {
    std::cerr << message << '\n';
}

struct Runtime {
    explicit Runtime(const char* model) : api(open_library().base->GetApi(api_version), nullptr) {
        check(api.CreateEnvWithCustomLogger(log, nullptr, ORT_LOGGING_LEVEL_WARNING, "direct", &environment));
        OrtSessionOptions* options = nullptr;
        check(api.CreateSessionOptions(&options));
        check(api.SetIntraOpNumThreads(options, 1));
        check(api.CreateSession(environment, model, options, &session));
        api.ReleaseSessionOptions(options);
        check(api.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));
        check(api.GetAllocatorWithDefaultOptions(&allocator));
    }

    void check(OrtStatus* status) const {
        if (status != nullptr) throw std::runtime_error(api.GetErrorMessage(status));
    }

    const Api api;
    OrtEnv* environment = nullptr;
    OrtSession* session = nullptr;
    OrtMemoryInfo* memory = nullptr;
    OrtAllocator* allocator = nullptr;
};

// Runs the session with tensors that are created and bound in advance.
class Call {
public:
    Call(const Runtime& runtime, const std::vector<std::int64_t>& shape) : runtime_(runtime), api_(runtime.api) {
        std::size_t elements = 1;
        for (const std::int64_t dim : shape) elements *= static_cast<std::size_t>(dim);
        data_.resize(elements, 0.5F);
        runtime.check(api_.CreateTensorWithDataAsOrtValue(runtime.memory, data_.data(), elements * sizeof(float),
                                                          shape.data(), shape.size(),
                                                          ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input_));
        runtime.check(api_.CreateRunOptions(&options_));
        runtime.check(api_.CreateIoBinding(runtime.session, &binding_));
        runtime.check(api_.BindInput(binding_, "INPUT__0", input_));
        // The output of the first run becomes the memory for all later ones.
        runtime.check(api_.BindOutputToDevice(binding_, "OUTPUT__0", runtime.memory));
        (*this)();
        OrtValue** outputs = nullptr;
        std::size_t count = 0;
        runtime.check(api_.GetBoundOutputValues(binding_, runtime.allocator, &outputs, &count));
        output_ = outputs[0];
        runtime.check(api_.AllocatorFree(runtime.allocator, static_cast<void*>(outputs)));
        runtime.check(api_.BindOutput(binding_, "OUTPUT__0", output_));
    }

    ~Call() {
        api_.ReleaseIoBinding(binding_);
        api_.ReleaseRunOptions(options_);
        api_.ReleaseValue(output_);
        api_.ReleaseValue(input_);
    }

    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    void operator()() const { runtime_.check(api_.RunWithBinding(runtime_.session, options_, binding_)); }

private:
    const Runtime& runtime_;
    const Api& api_;
    std::vector<float> data_;
    OrtValue* input_ = nullptr;
    OrtValue* output_ = nullptr;
    OrtRunOptions* options_ = nullptr;
    OrtIoBinding* binding_ = nullptr;
};

}  // namespace bench
