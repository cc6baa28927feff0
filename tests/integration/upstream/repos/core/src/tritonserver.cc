#include "triton/core/tritonserver.h"

#include <cstring>

#include "metrics.h"
#include "server.h"
#include "triton/common/logging.h"

using namespace triton::core;
namespace {

struct Error {
  TRITONSERVER_Error_Code code;
  std::string msg;
};
Error* Of(TRITONSERVER_Error* each) { return reinterpret_cast<Error*>(each); }
std::string* Of(TRITONSERVER_Message* each) { return reinterpret_cast<std::string*>(each); }
std::string* Of(TRITONSERVER_Metrics* each) { return reinterpret_cast<std::string*>(each); }
ServerOptions* Of(TRITONSERVER_ServerOptions* each) { return reinterpret_cast<ServerOptions*>(each); }
Server* Of(TRITONSERVER_Server* each) { return reinterpret_cast<Server*>(each); }
using triton::core::Of;

TRITONSERVER_Error*
Told(TRITONSERVER_Message** message, std::string text)
{
  *message = reinterpret_cast<TRITONSERVER_Message*>(new std::string(std::move(text)));
  return nullptr;
}

constexpr struct {
  TRITONSERVER_DataType type;
  const char* name;
  uint32_t size;
} kTypes[] = {
    {TRITONSERVER_TYPE_INVALID, "<invalid>", 0}, {TRITONSERVER_TYPE_BOOL, "BOOL", 1},
    {TRITONSERVER_TYPE_UINT8, "UINT8", 1},       {TRITONSERVER_TYPE_UINT16, "UINT16", 2},
    {TRITONSERVER_TYPE_UINT32, "UINT32", 4},     {TRITONSERVER_TYPE_UINT64, "UINT64", 8},
    {TRITONSERVER_TYPE_INT8, "INT8", 1},         {TRITONSERVER_TYPE_INT16, "INT16", 2},
    {TRITONSERVER_TYPE_INT32, "INT32", 4},       {TRITONSERVER_TYPE_INT64, "INT64", 8},
    {TRITONSERVER_TYPE_FP16, "FP16", 2},         {TRITONSERVER_TYPE_FP32, "FP32", 4},
    {TRITONSERVER_TYPE_FP64, "FP64", 8},         {TRITONSERVER_TYPE_BYTES, "BYTES", 0},
    {TRITONSERVER_TYPE_BF16, "BF16", 2},
};

}  // namespace

extern "C" {

TRITONSERVER_Error*
TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg)
{
  return reinterpret_cast<TRITONSERVER_Error*>(new Error{code, msg});
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { delete Of(error); }
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return Of(error)->code; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return Of(error)->msg.c_str(); }

const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype) { return kTypes[datatype].name; }
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype) { return kTypes[datatype].size; }

TRITONSERVER_DataType
TRITONSERVER_StringToDataType(const char* dtype)
{
  for (const auto& each : kTypes) {
    if (strcmp(each.name, dtype) == 0) {
      return each.type;
    }
  }
  return TRITONSERVER_TYPE_INVALID;
}

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) { return level != TRITONSERVER_LOG_VERBOSE; }

TRITONSERVER_Error*
TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char* filename, int line, const char* msg)
{
  if (TRITONSERVER_LogIsEnabled(level)) {
    triton::common::LogMessage("IWEI"[level], filename, line).stream() << msg;
  }
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message, const char* base, size_t byte_size)
{
  return Told(message, std::string(base, byte_size));
}

TRITONSERVER_Error*
TRITONSERVER_MessageDelete(TRITONSERVER_Message* message)
{
  delete Of(message);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message, const char** base, size_t* byte_size)
{
  *base = Of(message)->data();
  *byte_size = Of(message)->size();
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator** allocator, TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn, TRITONSERVER_ResponseAllocatorStartFn_t start_fn)
{
  *allocator = reinterpret_cast<TRITONSERVER_ResponseAllocator*>(new Allocator{alloc_fn, release_fn, start_fn});
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator* allocator)
{
  delete Of(allocator);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ServerOptionsNew(TRITONSERVER_ServerOptions** options)
{
  *options = reinterpret_cast<TRITONSERVER_ServerOptions*>(new ServerOptions);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ServerOptionsDelete(TRITONSERVER_ServerOptions* options)
{
  delete Of(options);
  return nullptr;
}

#define OPTION(function, type, statement)                                              \
  TRITONSERVER_Error* function(TRITONSERVER_ServerOptions* options, type value)        \
  {                                                                                    \
    Of(options)->statement;                                                            \
    return nullptr;                                                                    \
  }
OPTION(TRITONSERVER_ServerOptionsSetServerId, const char*, id = value)
OPTION(TRITONSERVER_ServerOptionsSetModelRepositoryPath, const char*, repositories.emplace_back(value))
OPTION(TRITONSERVER_ServerOptionsSetBackendDirectory, const char*, backend_directory = value)
OPTION(TRITONSERVER_ServerOptionsSetRepoAgentDirectory, const char*, repoagent_directory = value)
OPTION(TRITONSERVER_ServerOptionsSetCacheDirectory, const char*, cache_directory = value)
OPTION(TRITONSERVER_ServerOptionsSetExitTimeout, unsigned int, exit_timeout = value)
OPTION(TRITONSERVER_ServerOptionsSetStrictReadiness, bool, strict_readiness = value)
OPTION(TRITONSERVER_ServerOptionsSetMetrics, bool, metrics = value)
OPTION(TRITONSERVER_ServerOptionsSetModelControlMode, TRITONSERVER_ModelControlMode, control = value)
OPTION(TRITONSERVER_ServerOptionsSetStartupModel, const char*, startup_models.insert(value))

TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetCacheConfig(TRITONSERVER_ServerOptions* options, const char* cache_name, const char*)
{
  Of(options)->caches.emplace_back(cache_name);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ServerNew(TRITONSERVER_Server** server, TRITONSERVER_ServerOptions* options)
{
  auto made = std::make_unique<Server>(*Of(options));
  if (TRITONSERVER_Error* error = made->Init()) {
    return error;
  }
  *server = reinterpret_cast<TRITONSERVER_Server*>(made.release());
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ServerDelete(TRITONSERVER_Server* server)
{
  delete Of(server);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerStop(TRITONSERVER_Server* server) { return Of(server)->Stop(); }

TRITONSERVER_Error*
TRITONSERVER_ServerIsLive(TRITONSERVER_Server*, bool* live)
{
  *live = true;
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ServerIsReady(TRITONSERVER_Server* server, bool* ready)
{
  *ready = Of(server)->IsReady();
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server* server, const char* name, const int64_t version, bool* ready)
{
  std::shared_ptr<Model> model;
  TRITONSERVER_Error* error = Of(server)->Find(name, version, &model);
  *ready = error == nullptr;
  delete Of(error);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_ServerMetadata(TRITONSERVER_Server* server, TRITONSERVER_Message** message)
{
  return Told(message, Of(server)->Metadata());
}

TRITONSERVER_Error*
TRITONSERVER_ServerModelMetadata(
    TRITONSERVER_Server* server, const char* name, const int64_t version, TRITONSERVER_Message** message)
{
  std::shared_ptr<Model> model;
  RETURN_IF_ERROR(Of(server)->Find(name, version, &model));
  return Told(message, Of(server)->ModelMetadata(*model));
}

TRITONSERVER_Error*
TRITONSERVER_ServerModelConfig(
    TRITONSERVER_Server* server, const char* name, const int64_t version, const uint32_t config_version,
    TRITONSERVER_Message** message)
{
  std::shared_ptr<Model> model;
  RETURN_IF_ERROR(Of(server)->Find(name, version, &model));
  return TRITONBACKEND_ModelConfig(reinterpret_cast<TRITONBACKEND_Model*>(model.get()), config_version, message);
}

TRITONSERVER_Error*
TRITONSERVER_ServerModelIndex(TRITONSERVER_Server* server, uint32_t, TRITONSERVER_Message** message)
{
  return Told(message, Of(server)->Index());
}

TRITONSERVER_Error*
TRITONSERVER_ServerModelStatistics(
    TRITONSERVER_Server* server, const char* name, const int64_t, TRITONSERVER_Message** message)
{
  return Told(message, Of(server)->Statistics(name));
}

TRITONSERVER_Error*
TRITONSERVER_ServerInferAsync(
    TRITONSERVER_Server* server, TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceTrace*)
{
  return Of(server)->Infer(Of(request));
}

TRITONSERVER_Error*
TRITONSERVER_ServerLoadModel(TRITONSERVER_Server* server, const char* model_name)
{
  return Of(server)->Load(model_name);
}

TRITONSERVER_Error*
TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server* server, const char* model_name)
{
  return Of(server)->Unload(model_name);
}

TRITONSERVER_Error*
TRITONSERVER_ServerMetrics(TRITONSERVER_Server*, TRITONSERVER_Metrics** metrics)
{
  *metrics = reinterpret_cast<TRITONSERVER_Metrics*>(new std::string(Metrics::SerializedMetrics()));
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_MetricsFormatted(
    TRITONSERVER_Metrics* metrics, TRITONSERVER_MetricFormat, const char** base, size_t* byte_size)
{
  *base = Of(metrics)->data();
  *byte_size = Of(metrics)->size();
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics* metrics)
{
  delete Of(metrics);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest** request, TRITONSERVER_Server* server, const char* name, const int64_t version)
{
  auto made = std::make_unique<Request>();
  RETURN_IF_ERROR(Of(server)->Find(name, version, &made->model));
  *request = reinterpret_cast<TRITONSERVER_InferenceRequest*>(made.release());
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request)
{
  delete Of(request);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest* request, const char* id)
{
  Of(request)->id = id;
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestAddInput(
    TRITONSERVER_InferenceRequest* request, const char* name, const TRITONSERVER_DataType datatype,
    const int64_t* shape, uint64_t dim_count)
{
  Of(request)->inputs.push_back({name, datatype, std::vector<int64_t>(shape, shape + dim_count), {}});
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base, size_t byte_size,
    TRITONSERVER_MemoryType, int64_t)
{
  for (auto& each : Of(request)->inputs) {
    if (each.name == name) {
      each.buffers.push_back({base, byte_size});
      return nullptr;
    }
  }
  return NewError(TRITONSERVER_ERROR_INVALID_ARG, std::string("no input ") + name);
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestAddRequestedOutput(TRITONSERVER_InferenceRequest* request, const char* name)
{
  Of(request)->outputs.emplace_back(name);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceRequestReleaseFn_t fn, void* userp)
{
  Of(request)->release_fn = fn;
  Of(request)->release_userp = userp;
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_ResponseAllocator* allocator, void* allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t fn, void* userp)
{
  Of(request)->allocator = allocator;
  Of(request)->allocator_userp = allocator_userp;
  Of(request)->response_fn = fn;
  Of(request)->response_userp = userp;
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response)
{
  delete Of(response);
  return nullptr;
}

// The caller's.
TRITONSERVER_Error*
TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse* response)
{
  const auto* error = Of(Of(response)->error);
  return error ? NewError(error->code, error->msg) : nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse* response, const char** name, int64_t* version)
{
  *name = Of(response)->model->name.c_str();
  *version = int64_t(Of(response)->model->version);
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceResponseId(TRITONSERVER_InferenceResponse* response, const char** request_id)
{
  *request_id = Of(response)->id.c_str();
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceResponseOutputCount(TRITONSERVER_InferenceResponse* response, uint32_t* count)
{
  *count = uint32_t(Of(response)->outputs.size());
  return nullptr;
}

TRITONSERVER_Error*
TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const char** name, TRITONSERVER_DataType* datatype,
    const int64_t** shape, uint64_t* dim_count, const void** base, size_t* byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id, void** userp)
{
  const auto& output = Of(response)->outputs.at(index);
  *name = output.name.c_str();
  *datatype = output.type;
  *shape = output.shape.data();
  *dim_count = output.shape.size();
  *base = output.base;
  *byte_size = output.size;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  *userp = output.userp;
  return nullptr;
}

}  // extern "C"
