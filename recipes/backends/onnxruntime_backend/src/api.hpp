// The used part of ONNX Runtime's C API: a table of functions whose order is part of its ABI (it only ever grows at its
// end; documented as struct OrtApi). tests/test_api.py proves each position in released libraries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_backend {

struct OrtAllocator;
struct OrtEnv;
struct OrtIoBinding;
struct OrtMapTypeInfo;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSequenceTypeInfo;
struct OrtSession;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtThreadingOptions;
struct OrtTypeInfo;
struct OrtValue;

enum OrtErrorCode : int {
    ORT_OK = 0,
    ORT_FAIL = 1,
    ORT_INVALID_ARGUMENT = 2,
    ORT_NO_SUCHFILE = 3,
    ORT_NOT_IMPLEMENTED = 9,
};
enum OrtLoggingLevel : int {
    ORT_LOGGING_LEVEL_VERBOSE = 0,
    ORT_LOGGING_LEVEL_INFO = 1,
    ORT_LOGGING_LEVEL_WARNING = 2,
    ORT_LOGGING_LEVEL_ERROR = 3,
    ORT_LOGGING_LEVEL_FATAL = 4,
};
enum GraphOptimizationLevel : int {
    ORT_DISABLE_ALL = 0,
    ORT_ENABLE_BASIC = 1,
    ORT_ENABLE_EXTENDED = 2,
    ORT_ENABLE_ALL = 99,
};
enum ExecutionMode : int { ORT_SEQUENTIAL = 0, ORT_PARALLEL = 1 };
enum OrtAllocatorType : int { OrtDeviceAllocator = 0 };
enum OrtMemType : int { OrtMemTypeDefault = 0 };
enum ONNXType : int {
    ONNX_TYPE_UNKNOWN = 0,
    ONNX_TYPE_TENSOR = 1,
    ONNX_TYPE_SEQUENCE = 2,
    ONNX_TYPE_MAP = 3,
    ONNX_TYPE_OPAQUE = 4,
    ONNX_TYPE_SPARSETENSOR = 5,
    ONNX_TYPE_OPTIONAL = 6,
};
// Numbers of onnx.TensorProto.DataType.
enum ONNXTensorElementDataType : int {
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = 2,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = 3,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 = 4,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16 = 5,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = 6,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = 7,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING = 8,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = 9,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = 11,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32 = 12,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 = 13,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 = 16,
};

using OrtLoggingFunction = void(void* param, OrtLoggingLevel severity, const char* category, const char* logid,
                                const char* code_location, const char* message);

// The result of OrtGetApiBase().
struct OrtApiBase {
    const void* (*GetApi)(std::uint32_t version) noexcept;
    const char* (*GetVersionString)() noexcept;
};

// The requested version of the table: that of ONNX Runtime 1.20, the oldest that the tests run with.
constexpr std::uint32_t api_version = 20;
// The first version whose table has the entries of ONNX_BACKEND_LATER_API.
constexpr std::uint32_t later_api_version = 24;

// F(position in the table, name, type)
#define ONNX_BACKEND_API(F)                                                                                            \
    F(0, CreateStatus, OrtStatus*(OrtErrorCode code, const char* message))                                             \
    F(1, GetErrorCode, OrtErrorCode(const OrtStatus*))                                                                 \
    F(2, GetErrorMessage, const char*(const OrtStatus*))                                                               \
    F(4, CreateEnvWithCustomLogger, OrtStatus*(OrtLoggingFunction*, void*, OrtLoggingLevel, const char*, OrtEnv**))    \
    F(6, DisableTelemetryEvents, OrtStatus*(const OrtEnv*))                                                            \
    F(7, CreateSession, OrtStatus*(const OrtEnv*, const char* path, const OrtSessionOptions*, OrtSession**))           \
    F(10, CreateSessionOptions, OrtStatus*(OrtSessionOptions**))                                                       \
    F(13, SetSessionExecutionMode, OrtStatus*(OrtSessionOptions*, ExecutionMode))                                      \
    F(14, EnableProfiling, OrtStatus*(OrtSessionOptions*, const char* prefix))                                         \
    F(16, EnableMemPattern, OrtStatus*(OrtSessionOptions*))                                                            \
    F(17, DisableMemPattern, OrtStatus*(OrtSessionOptions*))                                                           \
    F(18, EnableCpuMemArena, OrtStatus*(OrtSessionOptions*))                                                           \
    F(19, DisableCpuMemArena, OrtStatus*(OrtSessionOptions*))                                                          \
    F(20, SetSessionLogId, OrtStatus*(OrtSessionOptions*, const char*))                                                \
    F(22, SetSessionLogSeverityLevel, OrtStatus*(OrtSessionOptions*, int))                                             \
    F(23, SetSessionGraphOptimizationLevel, OrtStatus*(OrtSessionOptions*, GraphOptimizationLevel))                    \
    F(24, SetIntraOpNumThreads, OrtStatus*(OrtSessionOptions*, int))                                                   \
    F(25, SetInterOpNumThreads, OrtStatus*(OrtSessionOptions*, int))                                                   \
    F(30, SessionGetInputCount, OrtStatus*(const OrtSession*, std::size_t*))                                           \
    F(31, SessionGetOutputCount, OrtStatus*(const OrtSession*, std::size_t*))                                          \
    F(32, SessionGetOverridableInitializerCount, OrtStatus*(const OrtSession*, std::size_t*))                          \
    F(33, SessionGetInputTypeInfo, OrtStatus*(const OrtSession*, std::size_t, OrtTypeInfo**))                          \
    F(34, SessionGetOutputTypeInfo, OrtStatus*(const OrtSession*, std::size_t, OrtTypeInfo**))                         \
    F(35, SessionGetOverridableInitializerTypeInfo, OrtStatus*(const OrtSession*, std::size_t, OrtTypeInfo**))         \
    F(36, SessionGetInputName, OrtStatus*(const OrtSession*, std::size_t, OrtAllocator*, char**))                      \
    F(37, SessionGetOutputName, OrtStatus*(const OrtSession*, std::size_t, OrtAllocator*, char**))                     \
    F(38, SessionGetOverridableInitializerName, OrtStatus*(const OrtSession*, std::size_t, OrtAllocator*, char**))     \
    F(39, CreateRunOptions, OrtStatus*(OrtRunOptions**))                                                               \
    F(41, RunOptionsSetRunLogSeverityLevel, OrtStatus*(OrtRunOptions*, int))                                           \
    F(46, RunOptionsSetTerminate, OrtStatus*(OrtRunOptions*))                                                          \
    F(47, RunOptionsUnsetTerminate, OrtStatus*(OrtRunOptions*))                                                        \
    F(48, CreateTensorAsOrtValue,                                                                                      \
      OrtStatus*(OrtAllocator*, const std::int64_t* shape, std::size_t rank, ONNXTensorElementDataType, OrtValue**))   \
    F(49, CreateTensorWithDataAsOrtValue,                                                                              \
      OrtStatus*(const OrtMemoryInfo*, void* data, std::size_t size, const std::int64_t* shape, std::size_t rank,      \
                 ONNXTensorElementDataType, OrtValue**))                                                               \
    F(51, GetTensorMutableData, OrtStatus*(OrtValue*, void**))                                                         \
    F(53, GetStringTensorDataLength, OrtStatus*(const OrtValue*, std::size_t*))                                        \
    F(54, GetStringTensorContent,                                                                                      \
      OrtStatus*(const OrtValue*, void* bytes, std::size_t size, std::size_t* offsets, std::size_t count))             \
    F(55, CastTypeInfoToTensorInfo, OrtStatus*(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**))                 \
    F(56, GetOnnxTypeFromTypeInfo, OrtStatus*(const OrtTypeInfo*, ONNXType*))                                          \
    F(60, GetTensorElementType, OrtStatus*(const OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType*))              \
    F(61, GetDimensionsCount, OrtStatus*(const OrtTensorTypeAndShapeInfo*, std::size_t*))                              \
    F(62, GetDimensions, OrtStatus*(const OrtTensorTypeAndShapeInfo*, std::int64_t*, std::size_t))                     \
    F(63, GetSymbolicDimensions, OrtStatus*(const OrtTensorTypeAndShapeInfo*, const char**, std::size_t))              \
    F(65, GetTensorTypeAndShape, OrtStatus*(const OrtValue*, OrtTensorTypeAndShapeInfo**))                             \
    F(69, CreateCpuMemoryInfo, OrtStatus*(OrtAllocatorType, OrtMemType, OrtMemoryInfo**))                              \
    F(76, AllocatorFree, OrtStatus*(OrtAllocator*, void*))                                                             \
    F(78, GetAllocatorWithDefaultOptions, OrtStatus*(OrtAllocator**))                                                  \
    F(80, GetValue, OrtStatus*(const OrtValue*, int index, OrtAllocator*, OrtValue**))                                 \
    F(81, GetValueCount, OrtStatus*(const OrtValue*, std::size_t*))                                                    \
    F(92, ReleaseEnv, void(OrtEnv*))                                                                                   \
    F(93, ReleaseStatus, void(OrtStatus*))                                                                             \
    F(94, ReleaseMemoryInfo, void(OrtMemoryInfo*))                                                                     \
    F(95, ReleaseSession, void(OrtSession*))                                                                           \
    F(96, ReleaseValue, void(OrtValue*))                                                                               \
    F(97, ReleaseRunOptions, void(OrtRunOptions*))                                                                     \
    F(98, ReleaseTypeInfo, void(OrtTypeInfo*))                                                                         \
    F(99, ReleaseTensorTypeAndShapeInfo, void(OrtTensorTypeAndShapeInfo*))                                             \
    F(100, ReleaseSessionOptions, void(OrtSessionOptions*))                                                            \
    F(103, CastTypeInfoToMapTypeInfo, OrtStatus*(const OrtTypeInfo*, const OrtMapTypeInfo**))                          \
    F(104, CastTypeInfoToSequenceTypeInfo, OrtStatus*(const OrtTypeInfo*, const OrtSequenceTypeInfo**))                \
    F(105, GetMapKeyType, OrtStatus*(const OrtMapTypeInfo*, ONNXTensorElementDataType*))                               \
    F(106, GetMapValueType, OrtStatus*(const OrtMapTypeInfo*, OrtTypeInfo**))                                          \
    F(107, GetSequenceElementType, OrtStatus*(const OrtSequenceTypeInfo*, OrtTypeInfo**))                              \
    F(110, SessionEndProfiling, OrtStatus*(OrtSession*, OrtAllocator*, char** file))                                   \
    F(120, DisablePerSessionThreads, OrtStatus*(OrtSessionOptions*))                                                   \
    F(121, CreateThreadingOptions, OrtStatus*(OrtThreadingOptions**))                                                  \
    F(122, ReleaseThreadingOptions, void(OrtThreadingOptions*))                                                        \
    F(125, GetAvailableProviders, OrtStatus*(char*** names, int* count))                                               \
    F(126, ReleaseAvailableProviders, OrtStatus*(char** names, int count))                                             \
    F(130, AddSessionConfigEntry, OrtStatus*(OrtSessionOptions*, const char* key, const char* value))                  \
    F(133, RunWithBinding, OrtStatus*(OrtSession*, const OrtRunOptions*, const OrtIoBinding*))                         \
    F(134, CreateIoBinding, OrtStatus*(OrtSession*, OrtIoBinding**))                                                   \
    F(135, ReleaseIoBinding, void(OrtIoBinding*))                                                                      \
    F(136, BindInput, OrtStatus*(OrtIoBinding*, const char* name, const OrtValue*))                                    \
    F(137, BindOutput, OrtStatus*(OrtIoBinding*, const char* name, const OrtValue*))                                   \
    F(138, BindOutputToDevice, OrtStatus*(OrtIoBinding*, const char* name, const OrtMemoryInfo*))                      \
    F(140, GetBoundOutputValues, OrtStatus*(const OrtIoBinding*, OrtAllocator*, OrtValue***, std::size_t* count))      \
    F(141, ClearBoundInputs, void(OrtIoBinding*))                                                                      \
    F(142, ClearBoundOutputs, void(OrtIoBinding*))                                                                     \
    F(147, SetGlobalIntraOpNumThreads, OrtStatus*(OrtThreadingOptions*, int))                                          \
    F(148, SetGlobalInterOpNumThreads, OrtStatus*(OrtThreadingOptions*, int))                                          \
    F(151, CreateEnvWithCustomLoggerAndGlobalThreadPools,                                                              \
      OrtStatus*(OrtLoggingFunction*, void*, OrtLoggingLevel, const char*, const OrtThreadingOptions*, OrtEnv**))      \
    F(165, AddRunConfigEntry, OrtStatus*(OrtRunOptions*, const char* key, const char* value))                          \
    F(216, SessionOptionsAppendExecutionProvider,                                                                      \
      OrtStatus*(OrtSessionOptions*, const char* name, const char* const* keys, const char* const* values,             \
                 std::size_t count))                                                                                   \
    F(228, RegisterCustomOpsLibrary_V2, OrtStatus*(OrtSessionOptions*, const char* path))                              \
    F(252, GetResizedStringTensorElementBuffer, OrtStatus*(OrtValue*, std::size_t index, std::size_t size, char**))

// The same, for entries that only later libraries have.
#define ONNX_BACKEND_LATER_API(F) F(390, TensorTypeAndShape_HasShape, bool(const OrtTensorTypeAndShapeInfo*))

struct Api {
#define ONNX_BACKEND_MEMBER(position, name, ...)                                                                       \
    using name##Function = __VA_ARGS__;                                                                                \
    name##Function* name = nullptr;
    ONNX_BACKEND_API(ONNX_BACKEND_MEMBER)
    ONNX_BACKEND_LATER_API(ONNX_BACKEND_MEMBER)  // null in an older library
#undef ONNX_BACKEND_MEMBER

    // Reads the functions from a library's tables. `later` is the table of later_api_version, null if it has none.
    Api(const void* table, const void* later) {
#define ONNX_BACKEND_ENTRY(position, name, ...)                                                                        \
    name = reinterpret_cast<name##Function*>(static_cast<void* const*>(entries)[position]);
        const void* entries = table;
        ONNX_BACKEND_API(ONNX_BACKEND_ENTRY)
        if (later != nullptr) {
            entries = later;
            ONNX_BACKEND_LATER_API(ONNX_BACKEND_ENTRY)
        }
#undef ONNX_BACKEND_ENTRY
    }
};

}  // namespace onnx_backend
