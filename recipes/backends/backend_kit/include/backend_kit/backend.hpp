// The classes that a backend implements. It derives from Backend, Model and Instance and writes once, in one source
// file:
//
//   BACKEND_KIT_ENTRY_POINTS(MyBackend)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backend_kit/batch.hpp"
#include "backend_kit/config.hpp"
#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"
#include "backend_kit/triton.h"

namespace backend_kit {

struct BackendInfo {
    std::string name;
    BackendConfig config;
};

struct ModelInfo {
    std::string name;
    std::uint64_t version = 0;
    std::string folder;  // the version folder: <repository>/<model>/<version>
    ModelConfig config;
};

struct InstanceInfo {
    std::string name;
    TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
    std::int32_t device_id = 0;

    // Throws Error (unsupported) for KIND_GPU; `hint` completes "use KIND_CPU or KIND_MODEL and ...".
    void refuse_gpu(std::string_view hint) const;
};

// One instance of a model. Triton never runs two batches of an instance at the same time.
class Instance {
public:
    virtual ~Instance() = default;

    // Computes one batch. An exception becomes the error of the requests (see Batch).
    virtual void run(Batch& batch) = 0;
};

// One loaded version of a model. Once it is loaded, members may be called for several instances at the same time.
class Model {
public:
    explicit Model(ModelInfo info) : info_(std::move(info)) {}
    virtual ~Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    const ModelInfo& info() const noexcept { return info_; }
    const ModelConfig& config() const noexcept { return info_.config; }

    // Fills in missing inputs, outputs and max_batch_size; called only when the server allows it (not with
    // --disable-auto-complete-config). Returns whether anything changed.
    virtual bool complete(ModelConfig&) { return false; }
    // Called once with the final configuration, before any instance is made; may refuse it by throwing.
    virtual void validate() {}

    virtual std::unique_ptr<Instance> make_instance(const InstanceInfo& info) = 0;

    // For the entry points: the configuration as completed by the server.
    void set_config(ModelConfig config) { info_.config = std::move(config); }

private:
    ModelInfo info_;
};

// The loaded backend, one in a server process. Models are created from several threads at the same time.
class Backend {
public:
    explicit Backend(BackendInfo info) : info_(std::move(info)) {}
    virtual ~Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    const BackendInfo& info() const noexcept { return info_; }

    virtual std::unique_ptr<Model> make_model(ModelInfo info) = 0;

private:
    BackendInfo info_;
};

// The implementations of the functions that Triton calls. They never throw.
namespace entry {

using MakeBackend = std::unique_ptr<Backend> (*)(BackendInfo info);

TRITONSERVER_Error* initialize(TRITONBACKEND_Backend* backend, MakeBackend make) noexcept;
TRITONSERVER_Error* finalize(TRITONBACKEND_Backend* backend) noexcept;
TRITONSERVER_Error* model_initialize(TRITONBACKEND_Model* model) noexcept;
TRITONSERVER_Error* model_finalize(TRITONBACKEND_Model* model) noexcept;
TRITONSERVER_Error* instance_initialize(TRITONBACKEND_ModelInstance* instance) noexcept;
TRITONSERVER_Error* instance_finalize(TRITONBACKEND_ModelInstance* instance) noexcept;
TRITONSERVER_Error* instance_execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                                     std::uint32_t count) noexcept;

}  // namespace entry

}  // namespace backend_kit

// Defines the exported functions for a backend class that is constructed from a BackendInfo.
#define BACKEND_KIT_ENTRY_POINTS(BackendClass)                                                                         \
    extern "C" {                                                                                                       \
    TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {                                     \
        return ::backend_kit::entry::initialize(                                                                       \
            backend, [](::backend_kit::BackendInfo info) -> std::unique_ptr<::backend_kit::Backend> {                  \
                return std::make_unique<BackendClass>(std::move(info));                                                \
            });                                                                                                        \
    }                                                                                                                  \
    TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {                                       \
        return ::backend_kit::entry::finalize(backend);                                                                \
    }                                                                                                                  \
    TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {                                    \
        return ::backend_kit::entry::model_initialize(model);                                                          \
    }                                                                                                                  \
    TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {                                      \
        return ::backend_kit::entry::model_finalize(model);                                                            \
    }                                                                                                                  \
    TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {                 \
        return ::backend_kit::entry::instance_initialize(instance);                                                    \
    }                                                                                                                  \
    TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {                   \
        return ::backend_kit::entry::instance_finalize(instance);                                                      \
    }                                                                                                                  \
    TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,                      \
                                                           TRITONBACKEND_Request** requests, uint32_t request_count) { \
        return ::backend_kit::entry::instance_execute(instance, requests, request_count);                              \
    }                                                                                                                  \
    }
