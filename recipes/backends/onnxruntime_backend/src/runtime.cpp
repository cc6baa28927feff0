#include "runtime.hpp"

#include <charconv>
#include <string_view>

#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"

namespace onnx_backend {
namespace {

// If asked for a version of the API that it lacks, the library would write to standard error; so 1.<version> is
// compared.
bool has_api(const Library& library, std::uint32_t version) {
    const std::string_view text = library.version;
    const std::size_t point = text.find('.');
    std::uint32_t minor = 0;
    if (point != std::string_view::npos) std::from_chars(text.data() + point + 1, text.data() + text.size(), minor);
    return minor >= version;
}

struct Runtime {
    Library library = open_library();
    Api api = functions(library);

    static Api functions(const Library& library) {
        const void* table = library.base->GetApi(api_version);
        return {table, has_api(library, later_api_version) ? library.base->GetApi(later_api_version) : nullptr};
    }
};

const Runtime& runtime() {
    static const Runtime loaded;
    return loaded;
}

TRITONSERVER_Error_Code code_of(OrtErrorCode code) noexcept {
    switch (code) {
        case ORT_INVALID_ARGUMENT:
            return TRITONSERVER_ERROR_INVALID_ARG;
        case ORT_NO_SUCHFILE:
            return TRITONSERVER_ERROR_NOT_FOUND;
        case ORT_NOT_IMPLEMENTED:
            return TRITONSERVER_ERROR_UNSUPPORTED;
        default:
            return TRITONSERVER_ERROR_INTERNAL;
    }
}

thread_local Placement* listening = nullptr;

// Parses "placed on [CPUExecutionProvider]. Number of nodes: 12" in a message.
void hear(std::string_view message, Placement& placement) {
    constexpr std::string_view before = "placed on [";
    constexpr std::string_view between = "]. Number of nodes: ";
    const std::size_t start = message.find(before);
    if (start == std::string_view::npos) return;
    message.remove_prefix(start + before.size());
    const std::size_t end = message.find(between);
    if (end == std::string_view::npos) return;
    const std::string_view count = message.substr(end + between.size());
    std::int64_t nodes = 0;
    if (std::from_chars(count.data(), count.data() + count.size(), nodes).ec == std::errc()) {
        placement[std::string(message.substr(0, end))] += nodes;
    }
}

void take_message(void*, OrtLoggingLevel severity, const char*, const char* logid, const char*, const char* message) {
    try {
        if (listening != nullptr) hear(message, *listening);
        if (severity < ORT_LOGGING_LEVEL_WARNING) return;
        const std::string text = "ONNX Runtime, " + std::string(logid) + ": " + message;
        severity == ORT_LOGGING_LEVEL_WARNING ? backend_kit::log_warning(text) : backend_kit::log_error(text);
    } catch (...) {
        backend_kit::log_message(TRITONSERVER_LOG_ERROR, "a message of ONNX Runtime was lost");
    }
}

Env make_env(const std::optional<ThreadPools>& pools) {
    constexpr const char* name = "onnxruntime";
    if (!pools) {
        return create<Env>(api().CreateEnvWithCustomLogger, take_message, nullptr, ORT_LOGGING_LEVEL_WARNING, name);
    }
    const auto options = create<ThreadingOptions>(api().CreateThreadingOptions);
    check(api().SetGlobalIntraOpNumThreads(options.get(), pools->intra_op));
    check(api().SetGlobalInterOpNumThreads(options.get(), pools->inter_op));
    return create<Env>(api().CreateEnvWithCustomLoggerAndGlobalThreadPools, take_message, nullptr,
                       ORT_LOGGING_LEVEL_WARNING, name, options.get());
}

std::vector<std::string> available_providers() {
    char** names = nullptr;
    int count = 0;
    check(api().GetAvailableProviders(&names, &count));
    std::vector<std::string> providers(names, names + count);
    check(api().ReleaseAvailableProviders(names, count));
    return providers;
}

}  // namespace

const Api& api() { return runtime().api; }

const Library& library() { return runtime().library; }

void check(OrtStatus* status) {
    if (status == nullptr) return;
    const Handle<OrtStatus, &Api::ReleaseStatus> owned(status);
    throw backend_kit::Error(code_of(api().GetErrorCode(status)), api().GetErrorMessage(status));
}

Environment::Environment(const std::optional<ThreadPools>& pools)
    : env_(make_env(pools)),
      cpu_(create<MemoryInfo>(api().CreateCpuMemoryInfo, OrtDeviceAllocator, OrtMemTypeDefault)),
      global_threads_(pools.has_value()),
      providers_(available_providers()) {
    check(api().DisableTelemetryEvents(env_.get()));
    check(api().GetAllocatorWithDefaultOptions(&allocator_));
}

Value tensor_over(const Environment& environment, void* data, std::size_t size, const std::vector<std::int64_t>& shape,
                  ONNXTensorElementDataType element) {
    return create<Value>(api().CreateTensorWithDataAsOrtValue, environment.cpu(), data, size, shape.data(),
                         shape.size(), element);
}

PlacementListener::PlacementListener() { listening = &placement_; }

PlacementListener::~PlacementListener() { listening = nullptr; }

}  // namespace onnx_backend
