#include "backend_model.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <cstring>

#include "backend_model_instance.h"
#include "filesystem/api.h"
#include "metrics.h"
#include "repo_agent.h"
#include "sequence_batch_scheduler/sequence_batch_scheduler.h"
#include "triton/common/logging.h"
namespace triton { namespace core {

namespace {

// The first file that is there, empty if none is.
template <class Join>
std::string
FirstFile(const std::vector<std::string>& places, const Join& join)
{
  for (const auto& place : places) {
    const std::string file = join(place);
    if (FileExists(file)) {
      return file;
    }
  }
  return "";
}

}  // namespace

std::string
AssembleCPPRuntimeLibraryName(const std::string& backend_name)
{
#ifdef _WIN32
  return "triton_" + backend_name + ".dll";
#else
  return "libtriton_" + backend_name + ".so";
#endif
}

Backend::~Backend()
{
  if (finalize) {
    TRITONSERVER_ErrorDelete(finalize(reinterpret_cast<TRITONBACKEND_Backend*>(this)));
  }
  if (config) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(config));
  }
}

TRITONSERVER_Error*
Backend::Load(const std::string& path, const std::string& backend_directory)
{
  folder = path.substr(0, path.rfind('/'));
  const std::string text = "{\"cmdline\":{\"auto-complete-config\":\"true\",\"backend-directory\":\"" + backend_directory +
                           "\",\"min-compute-capability\":\"6.000000\",\"default-max-batch-size\":\"4\"}}";
  RETURN_IF_ERROR(TRITONSERVER_MessageNewFromSerializedJson(&config, text.data(), text.size()));
  RETURN_IF_ERROR(library.OpenLibraryHandle(path));
  const auto find = [this](auto* to, const char* function) {
    *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(library.GetEntrypoint(function));
  };
  find(&model_initialize, "TRITONBACKEND_ModelInitialize");
  find(&model_finalize, "TRITONBACKEND_ModelFinalize");
  find(&instance_initialize, "TRITONBACKEND_ModelInstanceInitialize");
  find(&instance_finalize, "TRITONBACKEND_ModelInstanceFinalize");
  find(&execute, "TRITONBACKEND_ModelInstanceExecute");
  find(&initialize, "TRITONBACKEND_Initialize");
  if (execute == nullptr) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "no TRITONBACKEND_ModelInstanceExecute in " + path);
  }
  if (initialize) {
    RETURN_IF_ERROR(initialize(reinterpret_cast<TRITONBACKEND_Backend*>(this)));
  }
  find(&finalize, "TRITONBACKEND_Finalize");
  return nullptr;
}

TRITONSERVER_Error*
Model::Create(
    const std::string& folder, const Places& where, bool cache,
    std::map<std::string, std::shared_ptr<Backend>>* backends, std::shared_ptr<Model>* result)
{
  auto model = std::make_shared<Model>();
  model->folder = folder;
  model->name = folder.substr(folder.rfind('/') + 1);
  std::string text;
  if (!ReadTextFile(JoinPath({folder, "config.pbtxt"}), &text)) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "no config.pbtxt for model '" + model->name + "'");
  }
  auto& config = model->config;
  if (!google::protobuf::TextFormat::ParseFromString(text, &config)) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "cannot read config.pbtxt of model '" + model->name + "'");
  }
  if (config.name().empty()) {
    config.set_name(model->name);
  }
  if (config.name() != model->name) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "model '" + model->name + "' is called '" + config.name() + "'");
  }
  if (config.instance_group().empty()) {
    auto* group = config.add_instance_group();
    group->set_name(model->name);
    group->set_count(1);
    group->set_kind(inference::ModelInstanceGroup::KIND_CPU);
  }
  uint64_t version = 0;
  for (const auto& each : GetDirectorySubdirs(folder)) {
    version = std::max<uint64_t>(version, strtoull(each.c_str(), nullptr, 10));
  }
  if (version == 0) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "model '" + model->name + "' has no version");
  }
  model->version = version;

  for (const auto& agent : config.model_repository_agents().agents()) {
    RETURN_IF_ERROR(LoadRepoAgent(where.repository_agents, agent.name()));
  }
  const std::string backend_libname =
      config.runtime().empty() ? AssembleCPPRuntimeLibraryName(config.backend()) : config.runtime();
  const std::vector<std::string> places{
      JoinPath({folder, std::to_string(version)}), folder, JoinPath({where.backends, config.backend()})};
  const std::string library = FirstFile(places, [&](const auto& path) { return JoinPath({path, backend_libname}); });
  if (library.empty()) {
    return NewError(
        TRITONSERVER_ERROR_INVALID_ARG, "unable to find '" + backend_libname + "' for model '" + model->name +
                                            "', searched: " + places[0] + ", " + places[1] + ", " + places[2]);
  }
  auto& backend = (*backends)[library];
  if (backend == nullptr) {
    auto loaded = std::make_shared<Backend>();
    loaded->name = config.backend();
    RETURN_IF_ERROR(loaded->Load(library, where.backends));
    backend = loaded;
  }
  const std::string batch_libname = "batchstrategy.so";
  const std::string strategy = FirstFile(places, [&](const auto& path) { return JoinPath({path, batch_libname}); });
  if (!strategy.empty()) {
    LOG_INFO << "batching strategy of model '" << model->name << "' is " << strategy;
    RETURN_IF_ERROR(model->batch_strategy.OpenLibraryHandle(strategy));
  }
  model->backend = backend;
  model->use_cache_ = cache && config.response_cache().enable();
  if (backend->model_initialize) {
    RETURN_IF_ERROR(backend->model_initialize(reinterpret_cast<TRITONBACKEND_Model*>(model.get())));
  }
  for (const auto& group : config.instance_group()) {
    for (int i = 0; i < std::max(1, group.count()); ++i) {
      auto instance = std::make_unique<Instance>(model.get(), model->name + "_" + std::to_string(i));
      RETURN_IF_ERROR(instance->Initialize());
      model->instances.push_back(std::move(instance));
    }
  }
  if (config.has_sequence_batching()) {
    model->scheduler = std::make_unique<SequenceBatchScheduler>(model.get());
  } else {
    model->scheduler = std::make_unique<DynamicBatchScheduler>(model.get());
  }
  *result = std::move(model);
  return nullptr;
}

Model::~Model()
{
  scheduler.reset();
  instances.clear();
  if (backend && backend->model_finalize) {
    TRITONSERVER_ErrorDelete(backend->model_finalize(reinterpret_cast<TRITONBACKEND_Model*>(this)));
  }
}

std::string
Model::Key(const Request& request) const
{
  std::string key;
  for (const auto& input : request.inputs) {
    key += input.name + '\0' + std::to_string(input.type);
    for (const int64_t each : input.shape) {
      key += "," + std::to_string(each);
    }
    key += ':' + std::to_string(input.ByteSize()) + ':';
    for (const auto& each : input.buffers) {
      key.append(static_cast<const char*>(each.base), each.size);
    }
  }
  for (const auto& each : request.outputs) {
    key += '\0' + each;
  }
  return key;
}

uint64_t
Model::RowsOf(const Request& request) const
{
  return config.max_batch_size() > 0 && !request.inputs.empty() ? uint64_t(request.inputs[0].shape[0]) : 1;
}

bool
Model::AnswerFromCache(Request* request)
{
  if (!use_cache_) {
    return false;
  }
  auto response = std::make_unique<Response>(*request);
  {
    std::lock_guard<std::mutex> lock(cache_mu_);
    const auto found = cache_.find(Key(*request));
    if (found == cache_.end()) {
      return false;
    }
    response->error = found->second.DeserializeInto(response.get());
  }
  ++succeeded;
  rows += RowsOf(*request);
  const auto fn = response->response_fn;
  void* userp = response->response_userp;
  fn(reinterpret_cast<TRITONSERVER_InferenceResponse*>(response.release()), TRITONSERVER_RESPONSE_COMPLETE_FINAL, userp);
  request->Release();
  return true;
}

void
Model::Remember(const Request& request, const Response& response)
{
  if (!use_cache_ || response.error != nullptr) {
    return;
  }
  CacheEntry entry;
  TRITONSERVER_Error* error = entry.SetBufferSize(response);
  if (error == nullptr) {
    error = entry.SerializeResponse(response);
  }
  if (error != nullptr) {
    LOG_WARNING << TRITONSERVER_ErrorMessage(error);
    TRITONSERVER_ErrorDelete(error);
    return;
  }
  std::lock_guard<std::mutex> lock(cache_mu_);
  cache_.emplace(Key(request), std::move(entry));
}

void
Request::Release()
{
  const auto fn = release_fn;
  void* userp = release_userp;
  const auto keep = model;  // the callback may delete the request
  fn(reinterpret_cast<TRITONSERVER_InferenceRequest*>(this), TRITONSERVER_REQUEST_RELEASE_ALL, userp);
}

Response::Response(const Request& request)
    : model(request.model), id(request.id), allocator(request.allocator), allocator_userp(request.allocator_userp),
      request(&request), response_fn(request.response_fn), response_userp(request.response_userp)
{
}

Response::~Response()
{
  for (auto& each : outputs) {
    if (each.base != nullptr && Of(allocator)->release_fn) {
      TRITONSERVER_ErrorDelete(
          Of(allocator)->release_fn(allocator, each.base, each.userp, each.size, TRITONSERVER_MEMORY_CPU, 0));
    }
  }
  if (error != nullptr) {
    TRITONSERVER_ErrorDelete(error);
  }
}

void*
Response::Allocate(Output* output, size_t size, TRITONSERVER_Error** failure)
{
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t type_id = 0;
  *failure = Of(allocator)->alloc_fn(
      allocator, output->name.c_str(), size, type, type_id, allocator_userp, &output->base, &output->userp, &type, &type_id);
  if (*failure != nullptr) {
    output->base = nullptr;
    return nullptr;
  }
  output->size = size;
  return output->base;
}

static Backend* Of(TRITONBACKEND_Backend* each) { return reinterpret_cast<Backend*>(each); }
static Model* Of(TRITONBACKEND_Model* each) { return reinterpret_cast<Model*>(each); }
static Instance* Of(TRITONBACKEND_ModelInstance* each) { return reinterpret_cast<Instance*>(each); }

}}  // namespace triton::core

// What a backend calls.
using namespace triton::core;

extern "C" {

TRITONSERVER_Error*
TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor)
{
  *major = TRITONBACKEND_API_VERSION_MAJOR;
  *minor = TRITONBACKEND_API_VERSION_MINOR;
  return nullptr;
}

#define GETTER(function, handle, type, member)                     \
  TRITONSERVER_Error* function(handle* each, type* value)          \
  {                                                                \
    *value = member;                                               \
    return nullptr;                                                \
  }
#define SETTER(function, handle)                                   \
  TRITONSERVER_Error* function(handle* each, void* state)          \
  {                                                                \
    Of(each)->state = state;                                       \
    return nullptr;                                                \
  }
GETTER(TRITONBACKEND_BackendName, TRITONBACKEND_Backend, const char*, Of(each)->name.c_str())
GETTER(TRITONBACKEND_BackendConfig, TRITONBACKEND_Backend, TRITONSERVER_Message*, Of(each)->config)
GETTER(TRITONBACKEND_BackendState, TRITONBACKEND_Backend, void*, Of(each)->state)
SETTER(TRITONBACKEND_BackendSetState, TRITONBACKEND_Backend)
GETTER(TRITONBACKEND_ModelName, TRITONBACKEND_Model, const char*, Of(each)->name.c_str())
GETTER(TRITONBACKEND_ModelVersion, TRITONBACKEND_Model, uint64_t, Of(each)->version)
GETTER(TRITONBACKEND_ModelBackend, TRITONBACKEND_Model, TRITONBACKEND_Backend*,
       reinterpret_cast<TRITONBACKEND_Backend*>(Of(each)->backend.get()))
GETTER(TRITONBACKEND_ModelAutoCompleteConfig, TRITONBACKEND_Model, bool, (void(each), false))
GETTER(TRITONBACKEND_ModelState, TRITONBACKEND_Model, void*, Of(each)->state)
SETTER(TRITONBACKEND_ModelSetState, TRITONBACKEND_Model)
GETTER(TRITONBACKEND_ModelInstanceName, TRITONBACKEND_ModelInstance, const char*, Of(each)->name.c_str())
GETTER(TRITONBACKEND_ModelInstanceKind, TRITONBACKEND_ModelInstance, TRITONSERVER_InstanceGroupKind,
       (void(each), TRITONSERVER_INSTANCEGROUPKIND_CPU))
GETTER(TRITONBACKEND_ModelInstanceDeviceId, TRITONBACKEND_ModelInstance, int32_t, (void(each), 0))
GETTER(TRITONBACKEND_ModelInstanceModel, TRITONBACKEND_ModelInstance, TRITONBACKEND_Model*,
       reinterpret_cast<TRITONBACKEND_Model*>(Of(each)->model))
GETTER(TRITONBACKEND_ModelInstanceState, TRITONBACKEND_ModelInstance, void*, Of(each)->state)
SETTER(TRITONBACKEND_ModelInstanceSetState, TRITONBACKEND_ModelInstance)
GETTER(TRITONBACKEND_RequestIsCancelled, TRITONBACKEND_Request, bool, (void(each), false))
GETTER(TRITONBACKEND_RequestInputCount, TRITONBACKEND_Request, uint32_t, uint32_t(Of(each)->inputs.size()))
GETTER(TRITONBACKEND_RequestOutputCount, TRITONBACKEND_Request, uint32_t, uint32_t(Of(each)->outputs.size()))

TRITONSERVER_Error*
TRITONBACKEND_BackendArtifacts(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_ArtifactType* artifact_type, const char** location)
{
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = Of(backend)->folder.c_str();
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelRepository(
    TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* artifact_type, const char** location)
{
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = Of(model)->folder.c_str();
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, uint32_t config_version, TRITONSERVER_Message** model_config)
{
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_fields_with_no_presence = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(Of(model)->config, &text, options).ok()) {
    return NewError(TRITONSERVER_ERROR_INTERNAL, "cannot write the configuration as JSON");
  }
  return TRITONSERVER_MessageNewFromSerializedJson(model_config, text.data(), text.size());
}

TRITONSERVER_Error*
TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model*, uint32_t, TRITONSERVER_Message*)
{
  return NewError(TRITONSERVER_ERROR_UNSUPPORTED, "configurations are not completed here");
}

TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, bool success, uint64_t start, uint64_t,
    uint64_t, uint64_t end)
{
  auto* model = Of(instance)->model;
  ++(success ? model->succeeded : model->failed);
  (success ? model->succeeded_ns : model->failed_ns) += end - start;
  if (success) {
    model->rows += model->RowsOf(*Of(request));
  }
  Metrics::CountRequest(model->name, success);
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance*, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t)
{
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request, uint32_t index, TRITONBACKEND_Input** input)
{
  if (index >= Of(request)->inputs.size()) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "no input " + std::to_string(index));
  }
  *input = reinterpret_cast<TRITONBACKEND_Input*>(&Of(request)->inputs[index]);
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request, const char* name, TRITONBACKEND_Input** input)
{
  for (auto& each : Of(request)->inputs) {
    if (each.name == name) {
      *input = reinterpret_cast<TRITONBACKEND_Input*>(&each);
      return nullptr;
    }
  }
  return NewError(TRITONSERVER_ERROR_INVALID_ARG, std::string("no input ") + name);
}

TRITONSERVER_Error*
TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index, const char** output_name)
{
  if (index >= Of(request)->outputs.size()) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "no output " + std::to_string(index));
  }
  *output_name = Of(request)->outputs[index].c_str();
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t)
{
  Of(request)->Release();
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input* input, const char** name, TRITONSERVER_DataType* datatype, const int64_t** shape,
    uint32_t* dims_count, uint64_t* byte_size, uint32_t* buffer_count)
{
  const Input& each = *Of(input);
  if (name) *name = each.name.c_str();
  if (datatype) *datatype = each.type;
  if (shape) *shape = each.shape.data();
  if (dims_count) *dims_count = uint32_t(each.shape.size());
  if (byte_size) *byte_size = each.ByteSize();
  if (buffer_count) *buffer_count = uint32_t(each.buffers.size());
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_InputBuffer(
    TRITONBACKEND_Input* input, uint32_t index, const void** buffer, uint64_t* buffer_byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id)
{
  if (index >= Of(input)->buffers.size()) {
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, "no buffer " + std::to_string(index));
  }
  *buffer = Of(input)->buffers[index].base;
  *buffer_byte_size = Of(input)->buffers[index].size;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input* input, const char*, const uint32_t index, const void** buffer, uint64_t* buffer_byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id)
{
  return TRITONBACKEND_InputBuffer(input, index, buffer, buffer_byte_size, memory_type, memory_type_id);
}

TRITONSERVER_Error*
TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response, TRITONBACKEND_Request* request)
{
  *response = reinterpret_cast<TRITONBACKEND_Response*>(new Response(*Of(request)));
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response)
{
  delete Of(response);
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response* response, TRITONBACKEND_Output** output, const char* name, TRITONSERVER_DataType datatype,
    const int64_t* shape, uint32_t dims_count)
{
  Output& made = Of(response)->outputs.emplace_back();
  made.response = Of(response);
  made.name = name;
  made.type = datatype;
  made.shape.assign(shape, shape + dims_count);
  *output = reinterpret_cast<TRITONBACKEND_Output*>(&made);
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output* output, void** buffer, uint64_t buffer_byte_size, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id)
{
  TRITONSERVER_Error* error = nullptr;
  *buffer = Of(output)->response->Allocate(Of(output), buffer_byte_size, &error);
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return error;
}

TRITONSERVER_Error*
TRITONBACKEND_StateNew(
    TRITONBACKEND_State**, TRITONBACKEND_Request*, const char*, TRITONSERVER_DataType, const int64_t*, uint32_t)
{
  return NewError(TRITONSERVER_ERROR_UNSUPPORTED, "sequences have no states here");
}

TRITONSERVER_Error*
TRITONBACKEND_StateBuffer(TRITONBACKEND_State*, void**, uint64_t, TRITONSERVER_MemoryType*, int64_t*)
{
  return NewError(TRITONSERVER_ERROR_UNSUPPORTED, "sequences have no states here");
}

TRITONSERVER_Error*
TRITONBACKEND_StateUpdate(TRITONBACKEND_State*)
{
  return NewError(TRITONSERVER_ERROR_UNSUPPORTED, "sequences have no states here");
}

TRITONSERVER_Error*
TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, uint32_t send_flags, TRITONSERVER_Error* error)
{
  Response* each = Of(response);
  if (error != nullptr) {
    each->error = TRITONSERVER_ErrorNew(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
  }
  if (each->request != nullptr) {
    each->model->Remember(*each->request, *each);
  }
  const auto fn = each->response_fn;
  fn(reinterpret_cast<TRITONSERVER_InferenceResponse*>(each), send_flags, each->response_userp);
  return nullptr;
}

}  // extern "C"
