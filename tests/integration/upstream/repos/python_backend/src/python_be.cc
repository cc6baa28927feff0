// The backend: a process for each instance of a model, which runs its Python.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pb_env.h"
#include "pb_message.h"
#include "stub_launcher.h"
#include "triton/backend/backend_input_collector.h"
#include "triton/common/triton_json.h"
namespace triton { namespace backend { namespace python {

namespace {

struct BackendState {
  std::string python_lib;
  StubSettings settings;
  std::unique_ptr<EnvironmentManager> environments;
};

struct ModelState {
  StubSettings settings;
};

TRITONSERVER_Error*
AsError(const std::exception& error)
{
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
}

TRITONSERVER_Error*
ReadMessage(TRITONSERVER_Message* message, rapidjson::Document* json)
{
  const char* base = nullptr;
  size_t size = 0;
  RETURN_IF_ERROR(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  json->Parse(base, size);
  return json->IsObject() ? nullptr : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "not JSON");
}

TRITONSERVER_Error*
FindPlace(TRITONBACKEND_Backend* backend, BackendState* state)
{
  TRITONBACKEND_ArtifactType type;
  const char* location = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_BackendArtifacts(backend, &type, &location));
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_BackendConfig(backend, &message));
  rapidjson::Document json;
  RETURN_IF_ERROR(ReadMessage(message, &json));
  std::map<std::string, std::string> values;
  if (json.HasMember("cmdline")) {
    for (const auto& each : json["cmdline"].GetObject()) {
      values[each.name.GetString()] = each.value.GetString();
    }
  }
  const auto number = [&values](const char* key, size_t value) {
    return values.count(key) ? static_cast<size_t>(std::stoull(values[key])) : value;
  };
  auto& settings = state->settings;
  settings.shm_default_byte_size = number("shm-default-byte-size", settings.shm_default_byte_size);
  settings.shm_growth_byte_size = number("shm-growth-byte-size", settings.shm_growth_byte_size);
  settings.stub_timeout_seconds = static_cast<int>(number("stub-timeout-seconds", settings.stub_timeout_seconds));
  if (values.count("shm-region-prefix-name")) {
    settings.shm_region_prefix = values["shm-region-prefix-name"];
  }
  for (const std::string& place : {std::string(location), values["backend-directory"] + "/python"}) {
    if (FileExists(place + "/triton_python_backend_stub") && FileExists(place + "/triton_python_backend_utils.py")) {
      settings.python_lib = place;
      return nullptr;
    }
  }
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "triton_python_backend_stub is not there");
}

// The inputs of one request, copied.
TRITONSERVER_Error*
Collect(TRITONBACKEND_Request* request, Batch* batch)
{
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_RequestInputCount(request, &count));
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input* input = nullptr;
    const char* name = nullptr;
    TRITONSERVER_DataType type;
    const int64_t* shape = nullptr;
    uint32_t dims = 0;
    RETURN_IF_ERROR(TRITONBACKEND_RequestInputByIndex(request, i, &input));
    RETURN_IF_ERROR(TRITONBACKEND_InputProperties(input, &name, &type, &shape, &dims, nullptr, nullptr));
    const char* base = nullptr;
    size_t size = 0;
    std::string copy;
    RETURN_IF_ERROR(BackendInputCollector(input, "cpu").Collect(&copy, &base, &size));
    batch->tensors.push_back(
        {name, TRITONSERVER_DataTypeString(type), {shape, shape + dims}, size == 0 ? "" : std::string(base, size)});
  }
  RETURN_IF_ERROR(TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_RequestOutputName(request, i, &name));
    batch->requested.push_back(name);
  }
  return nullptr;
}

TRITONSERVER_Error*
Fill(TRITONBACKEND_Response* response, const Batch& batch)
{
  if (!batch.error.empty()) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, batch.error.c_str());
  }
  for (const auto& tensor : batch.tensors) {
    TRITONBACKEND_Output* output = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_ResponseOutput(
        response, &output, tensor.name.c_str(), TRITONSERVER_StringToDataType(tensor.dtype.c_str()),
        tensor.shape.data(), static_cast<uint32_t>(tensor.shape.size())));
    void* buffer = nullptr;
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    RETURN_IF_ERROR(TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes.size(), &memory_type, &memory_id));
    memcpy(buffer, tensor.bytes.data(), tensor.bytes.size());
  }
  return nullptr;
}

void
Ignore(TRITONSERVER_Error* error)
{
  if (error != nullptr) {
    TRITONSERVER_ErrorDelete(error);
  }
}

}  // namespace

extern "C" {

TRITONBACKEND_ISPEC TRITONSERVER_Error*
TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)
{
  try {
    auto state = std::make_unique<BackendState>();
    state->environments = std::make_unique<EnvironmentManager>();
    RETURN_IF_ERROR(FindPlace(backend, state.get()));
    return TRITONBACKEND_BackendSetState(backend, state.release());
  }
  catch (const std::exception& error) {
    return AsError(error);
  }
}

TRITONBACKEND_ISPEC TRITONSERVER_Error*
TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend)
{
  void* state = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_BackendState(backend, &state));
  delete static_cast<BackendState*>(state);
  return nullptr;
}

TRITONBACKEND_ISPEC TRITONSERVER_Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  TRITONBACKEND_Backend* backend = nullptr;
  void* backend_state = nullptr;
  TRITONBACKEND_ArtifactType type;
  const char* folder = nullptr;
  uint64_t version = 0;
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_ModelBackend(model, &backend));
  RETURN_IF_ERROR(TRITONBACKEND_BackendState(backend, &backend_state));
  RETURN_IF_ERROR(TRITONBACKEND_ModelRepository(model, &type, &folder));
  RETURN_IF_ERROR(TRITONBACKEND_ModelVersion(model, &version));
  RETURN_IF_ERROR(TRITONBACKEND_ModelConfig(model, 1, &message));
  rapidjson::Document config;
  TRITONSERVER_Error* bad = ReadMessage(message, &config);
  RETURN_IF_ERROR(TRITONSERVER_MessageDelete(message));
  RETURN_IF_ERROR(bad);
  try {
    auto* shared = static_cast<BackendState*>(backend_state);
    auto state = std::make_unique<ModelState>(ModelState{shared->settings});
    auto& settings = state->settings;
    settings.model_folder = folder;
    settings.model_path = settings.model_folder + "/" + std::to_string(version) + "/model.py";
    settings.model_config = triton::common::JsonText(config);
    if (config.HasMember("parameters") && config["parameters"].HasMember("EXECUTION_ENV_PATH")) {
      settings.python_execution_env = shared->environments->ExtractIfNotExtracted(
          config["parameters"]["EXECUTION_ENV_PATH"]["string_value"].GetString());
    }
    return TRITONBACKEND_ModelSetState(model, state.release());
  }
  catch (const std::exception& error) {
    return AsError(error);
  }
}

TRITONBACKEND_ISPEC TRITONSERVER_Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* state = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_ModelState(model, &state));
  delete static_cast<ModelState*>(state);
  return nullptr;
}

TRITONBACKEND_ISPEC TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance)
{
  TRITONBACKEND_Model* model = nullptr;
  void* state = nullptr;
  const char* name = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceModel(instance, &model));
  RETURN_IF_ERROR(TRITONBACKEND_ModelState(model, &state));
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceName(instance, &name));
  try {
    auto settings = static_cast<ModelState*>(state)->settings;
    settings.instance_name = name;
    auto launcher = std::make_unique<StubLauncher>(settings);
    launcher->Launch();
    return TRITONBACKEND_ModelInstanceSetState(instance, launcher.release());
  }
  catch (const std::exception& error) {
    return AsError(error);
  }
}

TRITONBACKEND_ISPEC TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance)
{
  void* state = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceState(instance, &state));
  delete static_cast<StubLauncher*>(state);
  return nullptr;
}

TRITONBACKEND_ISPEC TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count)
{
  void* state = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceState(instance, &state));
  const uint64_t start = NowNanoseconds();
  std::vector<Batch> answers(request_count);
  std::string failure;
  try {
    std::vector<Batch> batches(request_count);
    for (uint32_t i = 0; i < request_count; ++i) {
      RETURN_IF_ERROR(Collect(requests[i], &batches[i]));
    }
    const std::string answer = static_cast<StubLauncher*>(state)->Call(Encode(kExecute, batches), 600000);
    if (answer[0] == kDone) {
      answers = Decode(answer);
    } else {
      failure = answer.substr(1);
    }
  }
  catch (const std::exception& error) {
    failure = error.what();
  }
  if (failure.empty() && answers.size() != request_count) {
    failure = "the model gave another number of responses than there were requests";
  }
  answers.resize(request_count);
  const uint64_t end = NowNanoseconds();
  for (uint32_t i = 0; i < request_count; ++i) {
    if (!failure.empty()) {
      answers[i] = Batch{{}, {}, failure};
    }
    TRITONBACKEND_Response* response = nullptr;
    TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (error == nullptr) {
      error = Fill(response, answers[i]);
      Ignore(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    }
    Ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], error == nullptr, start, start, end, end));
    Ignore(error);
    Ignore(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return nullptr;
}

}  // extern "C"

}}}  // namespace triton::backend::python
