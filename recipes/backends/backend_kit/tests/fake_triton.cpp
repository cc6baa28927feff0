#include "fake_triton.hpp"

#include <algorithm>
#include <utility>

namespace fake {

Server server;
thread_local bool inside = false;

namespace {

class Inside {
public:
    Inside() : before_(std::exchange(inside, true)) {}
    ~Inside() { inside = before_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

private:
    bool before_;
};

TRITONSERVER_Error* make_error(TRITONSERVER_Error_Code code, const std::string& message) {
    ++server.errors;
    return new TRITONSERVER_Error{code, message};
}

// Counts a call; returns an error if it is the one that has to fail.
TRITONSERVER_Error* enter(const char* function) {
    if (server.calls++ != server.fail_at) {
        return nullptr;
    }
    server.failed = function;
    return make_error(TRITONSERVER_ERROR_INTERNAL, std::string(function) + " failed");
}

}  // namespace
}  // namespace fake

#define ENTER()                     \
    const fake::Inside inside_here; \
    if (TRITONSERVER_Error* const fault = fake::enter(__func__)) return fault

using fake::server;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg) {
    const fake::Inside inside_here;
    return fake::make_error(code, msg);
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
    --server.errors;
    delete error;
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) {
    return level != TRITONSERVER_LOG_VERBOSE || server.verbose;
}

TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char* filename, int line,
                                            const char* msg) {
    ENTER();
    server.log.push_back(std::string(1, "IWEV"[level]) + " " + filename + ":" + (line > 0 ? "n" : "?") + " " + msg);
    return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message, const char* base,
                                                              size_t byte_size) {
    ENTER();
    *message = new TRITONSERVER_Message{std::string(base, byte_size)};
    ++server.messages;
    return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
    const fake::Inside inside_here;
    --server.messages;
    delete message;
    return fake::enter(__func__);
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message, const char** base,
                                                        size_t* byte_size) {
    ENTER();
    *base = message->text.data();
    *byte_size = message->text.size();
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
    ENTER();
    *major = server.major;
    *minor = server.minor;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendName(TRITONBACKEND_Backend* backend, const char** name) {
    ENTER();
    *name = backend->name.c_str();
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend* backend, TRITONSERVER_Message** backend_config) {
    ENTER();
    *backend_config = &backend->config;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendState(TRITONBACKEND_Backend* backend, void** state) {
    ENTER();
    *state = backend->state;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend* backend, void* state) {
    ENTER();
    backend->state = state;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
    ENTER();
    *name = model->name.c_str();
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
    ENTER();
    *version = model->version;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* artifact_type,
                                                  const char** location) {
    ENTER();
    *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    *location = model->location.c_str();
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, uint32_t,
                                              TRITONSERVER_Message** model_config) {
    ENTER();
    *model_config = new TRITONSERVER_Message{model->set_config.empty() ? model->config : model->set_config};
    ++server.messages;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model, bool* auto_complete_config) {
    ENTER();
    *auto_complete_config = model->auto_complete;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, uint32_t,
                                                 TRITONSERVER_Message* model_config) {
    ENTER();
    model->set_config = model_config->text;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model, TRITONBACKEND_Backend** backend) {
    ENTER();
    *backend = model->backend;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
    ENTER();
    *state = model->state;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
    ENTER();
    model->state = state;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance* instance, const char** name) {
    ENTER();
    *name = instance->name.c_str();
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
    ENTER();
    *kind = instance->kind;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance* instance, int32_t* device_id) {
    ENTER();
    *device_id = instance->device_id;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
    ENTER();
    *model = instance->model;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance, void** state) {
    ENTER();
    *state = instance->state;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance, void* state) {
    ENTER();
    instance->state = state;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance*,
                                                                TRITONBACKEND_Request* request, bool success,
                                                                uint64_t exec_start_ns, uint64_t compute_start_ns,
                                                                uint64_t compute_end_ns, uint64_t exec_end_ns) {
    request->answered_after_release = request->answered_after_release || request->released > 0;
    ++request->reported;
    ENTER();
    request->success = success;
    request->exec_start = exec_start_ns;
    request->compute_start = compute_start_ns;
    request->compute_end = compute_end_ns;
    request->exec_end = exec_end_ns;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance* instance,
                                                                     uint64_t batch_size, uint64_t exec_start_ns,
                                                                     uint64_t compute_start_ns, uint64_t compute_end_ns,
                                                                     uint64_t exec_end_ns) {
    ENTER();
    instance->batches.push_back({batch_size, exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns});
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request, bool* is_cancelled) {
    ENTER();
    *is_cancelled = request->cancelled_after == 0;
    if (request->cancelled_after > 0) {
        --request->cancelled_after;
    }
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request, uint32_t* count) {
    ENTER();
    *count = static_cast<uint32_t>(request->inputs.size());
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request, uint32_t index,
                                                      TRITONBACKEND_Input** input) {
    ENTER();
    *input = &request->inputs.at(index);
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request, uint32_t* count) {
    ENTER();
    *count = static_cast<uint32_t>(request->wanted.size());
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index,
                                                    const char** output_name) {
    ENTER();
    *output_name = request->wanted.at(index).c_str();
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t release_flags) {
    ++request->released;
    ENTER();
    if (release_flags != TRITONSERVER_REQUEST_RELEASE_ALL) {
        return fake::make_error(TRITONSERVER_ERROR_INVALID_ARG, "wrong flags");
    }
    // The request's memory is freed here: the address sanitizer finds any later access.
    request->inputs = {};
    request->wanted = {};
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype, const int64_t** shape,
                                                  uint32_t* dims_count, uint64_t* byte_size, uint32_t* buffer_count) {
    ENTER();
    *name = input->name.c_str();
    *datatype = input->datatype;
    *shape = input->shape.data();
    *dims_count = static_cast<uint32_t>(input->shape.size());
    if (byte_size != nullptr) {
        *byte_size = 0;
        for (const TRITONBACKEND_Input::Buffer& buffer : input->buffers) {
            *byte_size += buffer.size;
        }
    }
    *buffer_count = static_cast<uint32_t>(input->buffers.size());
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t index, const void** buffer,
                                              uint64_t* buffer_byte_size, TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
    ENTER();
    const TRITONBACKEND_Input::Buffer& found = input->buffers.at(index);
    *buffer = found.data;
    *buffer_byte_size = found.size;
    *memory_type = found.type;
    *memory_type_id = 0;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response, TRITONBACKEND_Request* request) {
    ENTER();
    ++request->made;
    ++server.responses;
    *response = new TRITONBACKEND_Response{request, {}};
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response) {
    const fake::Inside inside_here;
    --server.responses;
    delete response;
    return fake::enter(__func__);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response, TRITONBACKEND_Output** output,
                                                 const char* name, TRITONSERVER_DataType datatype, const int64_t* shape,
                                                 uint32_t dims_count) {
    ENTER();
    for (const auto& other : response->outputs) {
        if (other->name == name) {
            return fake::make_error(TRITONSERVER_ERROR_INTERNAL, "an output twice");
        }
    }
    auto made = std::make_unique<TRITONBACKEND_Output>();
    made->request = response->request;
    made->name = name;
    made->datatype = datatype;
    made->shape.assign(shape, shape + dims_count);
    *output = made.get();
    response->outputs.push_back(std::move(made));
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer, uint64_t buffer_byte_size,
                                               TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
    ENTER();
    // Once for each request, whatever the response: the gRPC front end adds an output to its message each time, the
    // HTTP front end forgets that the output goes to shared memory.
    if (std::ranges::count(output->request->buffers, output->name) != 0) {
        return fake::make_error(TRITONSERVER_ERROR_INTERNAL, "a buffer twice");
    }
    output->request->buffers.push_back(output->name);
    output->has_buffer = true;
    output->data.resize(buffer_byte_size);
    *buffer = output->data.data();
    *memory_type_id = 0;
    *memory_type = output->name == "elsewhere" ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, uint32_t send_flags,
                                               TRITONSERVER_Error* error) {
    const fake::Inside inside_here;
    const std::unique_ptr<TRITONBACKEND_Response> owned(response);
    --server.responses;
    TRITONBACKEND_Request* request = response->request;
    request->answered_after_release = request->answered_after_release || request->released > 0;
    ++request->sent;
    if (TRITONSERVER_Error* const fault = fake::enter(__func__)) {
        return fault;
    }
    if (send_flags != TRITONSERVER_RESPONSE_COMPLETE_FINAL) {
        return fake::make_error(TRITONSERVER_ERROR_INVALID_ARG, "wrong flags");
    }
    if (error != nullptr) {
        request->error = true;
        request->code = error->code;
        request->message = error->message;
    }
    for (const auto& output : response->outputs) {
        request->outputs.push_back(std::move(*output));
    }
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_StateNew(TRITONBACKEND_State** state, TRITONBACKEND_Request* request,
                                           const char* name, TRITONSERVER_DataType datatype, const int64_t* shape,
                                           uint32_t dims_count) {
    ENTER();
    auto found = std::ranges::find(request->states, name, &TRITONBACKEND_State::name);
    if (found == request->states.end()) {
        found = request->states.insert(found, TRITONBACKEND_State{});
        found->request = request;
        found->name = name;
    }
    found->datatype = datatype;
    found->shape.assign(shape, shape + dims_count);
    *state = &*found;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_StateBuffer(TRITONBACKEND_State* state, void** buffer, uint64_t buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
    ENTER();
    state->data.resize(buffer_byte_size);
    *buffer = state->data.data();
    *memory_type = state->name == "elsewhere" ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
    *memory_type_id = 0;
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_StateUpdate(TRITONBACKEND_State* state) {
    TRITONBACKEND_Request* request = state->request;
    request->answered_after_release = request->answered_after_release || request->released > 0;
    ENTER();
    // The next request of the sequence may run once this one is answered.
    if (request->sent > 0) {
        return fake::make_error(TRITONSERVER_ERROR_INTERNAL, "a state after the response");
    }
    ++state->updated;
    state->kept_shape = state->shape;
    state->kept = state->data;
    return nullptr;
}

}  // extern "C"
