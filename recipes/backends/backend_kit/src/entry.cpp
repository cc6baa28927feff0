#include <string_view>

#include "backend_kit/backend.hpp"
#include "backend_kit/files.hpp"
#include "execute.hpp"
#include "sequence.hpp"

namespace backend_kit {
namespace {

constexpr std::uint32_t config_version = 1;

// A message that a getter of the server made for the caller.
class Message {
public:
    explicit Message(TRITONSERVER_Message* message) noexcept : message_(message) {}
    ~Message() { log_if_error(TRITONSERVER_MessageDelete(message_), "delete a message"); }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;

    TRITONSERVER_Message* get() const noexcept { return message_; }

private:
    TRITONSERVER_Message* message_;
};

// The pointer that an instance of the server carries.
struct InstanceState {
    std::unique_ptr<Instance> instance;
    const Model* model;
};

std::string_view message_text(TRITONSERVER_Message* message) {
    const char* text = nullptr;
    std::size_t size = 0;
    check(TRITONSERVER_MessageSerializeToJson(message, &text, &size));
    return {text, size};
}

void check_version() {
    std::uint32_t major = 0;
    std::uint32_t minor = 0;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != TRITONBACKEND_API_VERSION_MAJOR || minor < TRITONBACKEND_API_VERSION_MINOR) {
        throw unsupported("the backend API of this server is " + std::to_string(major) + "." + std::to_string(minor) +
                          ", but this backend needs " + std::to_string(TRITONBACKEND_API_VERSION_MAJOR) + "." +
                          std::to_string(TRITONBACKEND_API_VERSION_MINOR) + " or a later " +
                          std::to_string(TRITONBACKEND_API_VERSION_MAJOR) + ".x");
    }
}

BackendInfo read_backend(TRITONBACKEND_Backend* backend) {
    const char* name = nullptr;
    TRITONSERVER_Message* config = nullptr;
    check(TRITONBACKEND_BackendName(backend, &name));
    check(TRITONBACKEND_BackendConfig(backend, &config));
    return {name, BackendConfig::parse(message_text(config))};
}

ModelConfig read_config(TRITONBACKEND_Model* model) {
    TRITONSERVER_Message* config = nullptr;
    check(TRITONBACKEND_ModelConfig(model, config_version, &config));
    const Message message(config);
    return ModelConfig::parse(message_text(config));
}

ModelInfo read_model(TRITONBACKEND_Model* model) {
    const char* name = nullptr;
    const char* location = nullptr;
    TRITONBACKEND_ArtifactType kind = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    ModelInfo info;
    check(TRITONBACKEND_ModelName(model, &name));
    check(TRITONBACKEND_ModelVersion(model, &info.version));
    check(TRITONBACKEND_ModelRepository(model, &kind, &location));
    if (kind != TRITONBACKEND_ARTIFACT_FILESYSTEM) {
        throw unsupported("model " + std::string(name) + " is not in a file system");
    }
    info.name = name;
    info.folder = std::string(location) + "/" + std::to_string(info.version);
    info.config = read_config(model);
    info.config.check_supported();
    check_files(info.config, info.folder);
    return info;
}

InstanceInfo read_instance(TRITONBACKEND_ModelInstance* instance) {
    const char* name = nullptr;
    InstanceInfo info;
    check(TRITONBACKEND_ModelInstanceName(instance, &name));
    check(TRITONBACKEND_ModelInstanceKind(instance, &info.kind));
    check(TRITONBACKEND_ModelInstanceDeviceId(instance, &info.device_id));
    info.name = name;
    return info;
}

void complete(Model& model, TRITONBACKEND_Model* handle) {
    bool wanted = false;
    check(TRITONBACKEND_ModelAutoCompleteConfig(handle, &wanted));
    ModelConfig config = model.config();
    if (!wanted || !model.complete(config)) {
        return;
    }
    const std::string text = config.completed();
    TRITONSERVER_Message* message = nullptr;
    check(TRITONSERVER_MessageNewFromSerializedJson(&message, text.data(), text.size()));
    const Message owned(message);
    check(TRITONBACKEND_ModelSetConfig(handle, config_version, owned.get()));
    model.set_config(read_config(handle));  // the server may have filled in more
    model.config().check_supported();
}

Backend& backend_of(TRITONBACKEND_Model* model) {
    TRITONBACKEND_Backend* backend = nullptr;
    void* state = nullptr;
    check(TRITONBACKEND_ModelBackend(model, &backend));
    check(TRITONBACKEND_BackendState(backend, &state));
    return *static_cast<Backend*>(state);
}

Model& model_of(TRITONBACKEND_ModelInstance* instance) {
    TRITONBACKEND_Model* model = nullptr;
    void* state = nullptr;
    check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    check(TRITONBACKEND_ModelState(model, &state));
    return *static_cast<Model*>(state);
}

}  // namespace

void InstanceInfo::refuse_gpu(std::string_view hint) const {
    if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU) {
        throw unsupported("KIND_GPU is not served; use KIND_CPU or KIND_MODEL and " + std::string(hint));
    }
}

namespace entry {

TRITONSERVER_Error* initialize(TRITONBACKEND_Backend* backend, MakeBackend make) noexcept {
    return guarded([&] {
        check_version();
        std::unique_ptr<Backend> made = make(read_backend(backend));
        check(TRITONBACKEND_BackendSetState(backend, made.get()));
        made.release();
    });
}

TRITONSERVER_Error* finalize(TRITONBACKEND_Backend* backend) noexcept {
    return guarded([&] {
        void* state = nullptr;
        check(TRITONBACKEND_BackendState(backend, &state));
        delete static_cast<Backend*>(state);
    });
}

TRITONSERVER_Error* model_initialize(TRITONBACKEND_Model* model) noexcept {
    return guarded([&] {
        std::unique_ptr<Model> made = backend_of(model).make_model(read_model(model));
        complete(*made, model);
        check_sequence_outputs(made->config());
        made->validate();
        check(TRITONBACKEND_ModelSetState(model, made.get()));
        made.release();
    });
}

TRITONSERVER_Error* model_finalize(TRITONBACKEND_Model* model) noexcept {
    return guarded([&] {
        void* state = nullptr;
        check(TRITONBACKEND_ModelState(model, &state));
        delete static_cast<Model*>(state);
    });
}

TRITONSERVER_Error* instance_initialize(TRITONBACKEND_ModelInstance* instance) noexcept {
    return guarded([&] {
        Model& model = model_of(instance);
        auto state = std::make_unique<InstanceState>(InstanceState{nullptr, &model});
        state->instance = model.make_instance(read_instance(instance));
        check(TRITONBACKEND_ModelInstanceSetState(instance, state.get()));
        state.release();
    });
}

TRITONSERVER_Error* instance_finalize(TRITONBACKEND_ModelInstance* instance) noexcept {
    return guarded([&] {
        void* state = nullptr;
        check(TRITONBACKEND_ModelInstanceState(instance, &state));
        delete static_cast<InstanceState*>(state);
    });
}

TRITONSERVER_Error* instance_execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                                     std::uint32_t count) noexcept {
    return guarded([&] {
        void* state = nullptr;
        check(TRITONBACKEND_ModelInstanceState(instance, &state));
        const auto* own = static_cast<InstanceState*>(state);
        execute(own->model->config(), *own->instance, instance, {requests, count});
    });
}

}  // namespace entry

}  // namespace backend_kit
