// Answers with its inputs: OUTPUT<n> is INPUT<n>. A parameter execute_delay_ms of the model makes it slow.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "triton/backend/backend_input_collector.h"
#include "triton/common/triton_json.h"

using namespace triton::backend;
namespace {

struct Settings {
  int delay_ms = 0;
};

TRITONSERVER_Error*
IsWanted(TRITONBACKEND_Request* request, const std::string& name, bool* wanted)
{
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t i = 0; i < count && !*wanted; ++i) {
    const char* each = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_RequestOutputName(request, i, &each));
    *wanted = name == each;
  }
  return nullptr;
}

TRITONSERVER_Error*
Answer(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response)
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
    std::string copy, output_name(name);
    if (output_name.rfind("INPUT", 0) != 0) {
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "inputs are called INPUT<n>");
    }
    output_name.replace(0, 5, "OUTPUT");
    bool wanted = false;
    RETURN_IF_ERROR(IsWanted(request, output_name, &wanted));
    if (!wanted) {
      continue;
    }
    const char* base = nullptr;
    size_t size = 0;
    RETURN_IF_ERROR(BackendInputCollector(input, "cpu").Collect(&copy, &base, &size));
    TRITONBACKEND_Output* output = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_ResponseOutput(response, &output, output_name.c_str(), type, shape, dims));
    void* buffer = nullptr;
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    RETURN_IF_ERROR(TRITONBACKEND_OutputBuffer(output, &buffer, size, &memory_type, &memory_id));
    if (size != 0) {
      memcpy(buffer, base, size);
    }
  }
  return nullptr;
}

}  // namespace

extern "C" {

TRITONSERVER_Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  TRITONSERVER_Message* message = nullptr;
  const char* base = nullptr;
  size_t size = 0;
  RETURN_IF_ERROR(TRITONBACKEND_ModelConfig(model, 1, &message));
  RETURN_IF_ERROR(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  rapidjson::Document config;
  config.Parse(base, size);
  auto* settings = new Settings;
  if (config.IsObject() && config.HasMember("parameters") && config["parameters"].HasMember("execute_delay_ms")) {
    settings->delay_ms = atoi(config["parameters"]["execute_delay_ms"]["string_value"].GetString());
  }
  RETURN_IF_ERROR(TRITONSERVER_MessageDelete(message));
  return TRITONBACKEND_ModelSetState(model, settings);
}

TRITONSERVER_Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* state = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_ModelState(model, &state));
  delete static_cast<Settings*>(state);
  return nullptr;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count)
{
  TRITONBACKEND_Model* model = nullptr;
  void* state = nullptr;
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceModel(instance, &model));
  RETURN_IF_ERROR(TRITONBACKEND_ModelState(model, &state));
  const uint64_t start = NowNanoseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<Settings*>(state)->delay_ms));
  for (uint32_t i = 0; i < request_count; ++i) {
    TRITONBACKEND_Response* response = nullptr;
    if (TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[i])) {
      RespondWithError(requests[i], error);
      continue;
    }
    TRITONSERVER_Error* error = Answer(requests[i], response);
    const bool success = error == nullptr;
    if (TRITONSERVER_Error* late =
            TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error)) {
      TRITONSERVER_ErrorDelete(late);
    }
    if (!success) {
      TRITONSERVER_ErrorDelete(error);
    }
    const uint64_t end = NowNanoseconds();
    for (TRITONSERVER_Error* each :
         {TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], success, start, start, end, end),
          TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL)}) {
      if (each != nullptr) {
        TRITONSERVER_ErrorDelete(each);
      }
    }
  }
  const uint64_t finish = NowNanoseconds();
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, request_count, start, start, finish, finish);
}

}  // extern "C"
