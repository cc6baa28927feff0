// ONNX Runtime in this process: the loaded library, handles of its objects, and its environment.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api.hpp"
#include "library.hpp"

namespace onnx_backend {

// The functions of ONNX Runtime, which is found and loaded by the first call. Throws backend_kit::Error (unavailable).
const Api& api();

// The library that provides them.
const Library& library();

// Throws the error that a function of ONNX Runtime returned, if any, as backend_kit::Error.
void check(OrtStatus* status);

template <auto Release>
struct Releaser {
    template <class Object>
    void operator()(Object* object) const noexcept {
        (api().*Release)(object);
    }
};

template <class Object, auto Release>
using Handle = std::unique_ptr<Object, Releaser<Release>>;

using Env = Handle<OrtEnv, &Api::ReleaseEnv>;
using IoBinding = Handle<OrtIoBinding, &Api::ReleaseIoBinding>;
using MemoryInfo = Handle<OrtMemoryInfo, &Api::ReleaseMemoryInfo>;
using RunOptions = Handle<OrtRunOptions, &Api::ReleaseRunOptions>;
using SessionHandle = Handle<OrtSession, &Api::ReleaseSession>;
using SessionOptions = Handle<OrtSessionOptions, &Api::ReleaseSessionOptions>;
using ShapeInfo = Handle<OrtTensorTypeAndShapeInfo, &Api::ReleaseTensorTypeAndShapeInfo>;
using ThreadingOptions = Handle<OrtThreadingOptions, &Api::ReleaseThreadingOptions>;
using TypeInfo = Handle<OrtTypeInfo, &Api::ReleaseTypeInfo>;
using Value = Handle<OrtValue, &Api::ReleaseValue>;

// Returns the object that a function hands over in its last argument: create<Value>(api().CreateTensor..., ...).
template <class Made, class Function, class... Arguments>
Made create(Function* function, Arguments... arguments) {
    typename Made::pointer object = nullptr;
    check(function(arguments..., &object));
    return Made(object);
}

// One thread pool for all sessions; 0 threads let ONNX Runtime choose the number.
struct ThreadPools {
    int intra_op = 0;
    int inter_op = 0;
};

// How many nodes of a model each execution provider took, by the provider's name.
using Placement = std::map<std::string, std::int64_t>;

// ONNX Runtime's environment, one in a process. Its warnings and errors go to the server's log.
class Environment {
public:
    explicit Environment(const std::optional<ThreadPools>& pools);

    const OrtEnv* env() const noexcept { return env_.get(); }
    const OrtMemoryInfo* cpu() const noexcept { return cpu_.get(); }
    OrtAllocator* allocator() const noexcept { return allocator_; }
    bool global_threads() const noexcept { return global_threads_; }
    // The execution providers of the library, such as "CoreMLExecutionProvider".
    const std::vector<std::string>& providers() const noexcept { return providers_; }

private:
    Env env_;
    MemoryInfo cpu_;
    OrtAllocator* allocator_ = nullptr;
    bool global_threads_;
    std::vector<std::string> providers_;
};

// A tensor of numbers over `size` bytes of CPU memory, which the caller keeps.
Value tensor_over(const Environment& environment, void* data, std::size_t size, const std::vector<std::int64_t>& shape,
                  ONNXTensorElementDataType element);

// While it lives, collects ONNX Runtime's messages on this thread about the placement of nodes. They are of level
// verbose: before 1.24 no function returns the placement.
class PlacementListener {
public:
    PlacementListener();
    ~PlacementListener();
    PlacementListener(const PlacementListener&) = delete;
    PlacementListener& operator=(const PlacementListener&) = delete;

    const Placement& heard() const noexcept { return placement_; }

private:
    Placement placement_;
};

}  // namespace onnx_backend
