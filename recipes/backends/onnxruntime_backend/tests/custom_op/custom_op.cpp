// A library with one operator, `macbuild.test.Twice` (FP32, y = 2 x), such as users name in op_library_filename.
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "api.hpp"

namespace {

using namespace onnx_backend;

struct OrtApi;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtCustomOpDomain;

// Documented as struct OrtCustomOp. A field is read only if `version` is that of a release that had it; these are
// the fields of 1.12.
struct OrtCustomOp {
    std::uint32_t version;
    void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
    const char* (*GetName)(const OrtCustomOp*);
    const char* (*GetExecutionProviderType)(const OrtCustomOp*);
    ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp*, std::size_t);
    std::size_t (*GetInputTypeCount)(const OrtCustomOp*);
    ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp*, std::size_t);
    std::size_t (*GetOutputTypeCount)(const OrtCustomOp*);
    void (*KernelCompute)(void* kernel, OrtKernelContext*);
    void (*KernelDestroy)(void* kernel);
    int (*GetInputCharacteristic)(const OrtCustomOp*, std::size_t);
    int (*GetOutputCharacteristic)(const OrtCustomOp*, std::size_t);
};

const void* table = nullptr;
OrtCustomOpDomain* domain = nullptr;
std::mutex mutex;

template <typename Function>
Function* entry(std::size_t position) {
    return reinterpret_cast<Function*>(static_cast<const void* const*>(table)[position]);
}

// ONNX Runtime unloads the library after the last session that uses it.
struct Farewell {
    ~Farewell() {
        if (domain != nullptr) entry<void(OrtCustomOpDomain*)>(101)(domain);
    }
} farewell;

void compute(void*, OrtKernelContext* context) {
    const Api api(table, nullptr);
    const auto get_input = entry<OrtStatus*(const OrtKernelContext*, std::size_t, const OrtValue**)>(90);
    const auto get_output =
        entry<OrtStatus*(OrtKernelContext*, std::size_t, const std::int64_t*, std::size_t, OrtValue**)>(91);
    const OrtValue* x = nullptr;
    get_input(context, 0, &x);
    OrtTensorTypeAndShapeInfo* info = nullptr;
    api.GetTensorTypeAndShape(x, &info);
    std::size_t rank = 0;
    api.GetDimensionsCount(info, &rank);
    std::int64_t shape[8] = {};
    api.GetDimensions(info, shape, rank);
    api.ReleaseTensorTypeAndShapeInfo(info);
    OrtValue* y = nullptr;
    get_output(context, 0, shape, rank, &y);
    void* from = nullptr;
    void* to = nullptr;
    api.GetTensorMutableData(const_cast<OrtValue*>(x), &from);
    api.GetTensorMutableData(y, &to);
    std::int64_t count = 1;
    for (std::size_t i = 0; i < rank; ++i) count *= shape[i];
    for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(to)[i] = 2 * static_cast<const float*>(from)[i];
}

const OrtCustomOp twice{
    .version = 12,
    .CreateKernel = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*) -> void* { return &table; },
    .GetName = [](const OrtCustomOp*) { return "Twice"; },
    .GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; },
    .GetInputType = [](const OrtCustomOp*, std::size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; },
    .GetInputTypeCount = [](const OrtCustomOp*) -> std::size_t { return 1; },
    .GetOutputType = [](const OrtCustomOp*, std::size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; },
    .GetOutputTypeCount = [](const OrtCustomOp*) -> std::size_t { return 1; },
    .KernelCompute = compute,
    .KernelDestroy = [](void*) {},
    .GetInputCharacteristic = [](const OrtCustomOp*, std::size_t) { return 0; },
    .GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t) { return 0; },
};

}  // namespace

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
    const std::lock_guard lock(mutex);  // models are loaded at the same time
    if (domain == nullptr) {
        table = base->GetApi(api_version);
        if (OrtStatus* status = entry<OrtStatus*(const char*, OrtCustomOpDomain**)>(26)("macbuild.test", &domain)) {
            return status;
        }
        if (OrtStatus* status = entry<OrtStatus*(OrtCustomOpDomain*, const OrtCustomOp*)>(27)(domain, &twice)) {
            return status;
        }
    }
    return entry<OrtStatus*(OrtSessionOptions*, OrtCustomOpDomain*)>(28)(options, domain);
}
