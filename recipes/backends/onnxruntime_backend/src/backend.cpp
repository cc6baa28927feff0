// The backend as Triton sees it: the environment, models, and their instances.
#include "backend_kit/backend.hpp"

#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "backend_kit/files.hpp"
#include "complete.hpp"
#include "external.hpp"
#include "instance.hpp"
#include "session.hpp"
#include "settings.hpp"
#include "watch.hpp"

namespace onnx_backend {
namespace {

namespace fs = std::filesystem;

using backend_kit::ModelConfig;
using backend_kit::ModelInfo;

constexpr const char* default_file = "model.onnx";

// The file of a model: a file, or model.onnx in a folder that also has its external data.
std::string model_file(const ModelInfo& info) {
    const std::string& given = info.config.default_model_filename;
    // The server fills in the name that nobody gave.
    const bool by_default = given.empty() || given == default_file;
    const std::string name = by_default ? default_file : given;
    const std::string_view field = by_default ? "the model's file" : "default_model_filename";
    std::error_code ignored;
    const bool is_folder = fs::is_directory(fs::path(info.folder) / name, ignored);
    std::string path = backend_kit::named_file(info.folder, is_folder ? name + "/" + default_file : name, field);
    if (!fs::is_regular_file(path, ignored)) throw backend_kit::not_found("no model file " + path);
    const fs::path beside = is_folder ? fs::path(name) : fs::path(name).parent_path();
    for (const std::string& location : external_locations(path)) {
        backend_kit::named_file(info.folder, (beside / location).string(), "the model's external data");
    }
    return path;
}

// Execution providers whose files and folders are where a model may have them: a text with a slash is a path, as is the
// folder of CoreML's cache.
std::vector<backend_kit::Accelerator> placed(std::vector<backend_kit::Accelerator> accelerators,
                                             const backend_kit::Places& places) {
    for (backend_kit::Accelerator& accelerator : accelerators) {
        for (auto& [key, value] : accelerator.parameters) {
            if (key != "ModelCacheDirectory" && value.find('/') == std::string::npos) continue;
            value = places.writable(value, "option " + key + " of execution provider " + accelerator.name);
        }
    }
    return accelerators;
}

SessionSource session_source(const ModelInfo& info, const backend_kit::BackendInfo& backend) {
    const ModelConfig& config = info.config;
    const std::string label = "model " + info.name;
    if (!config.gpu_accelerators.empty()) {
        throw backend_kit::unsupported(label + ": '" + config.gpu_accelerators[0].name +
                                       "' is a GPU accelerator, which is not supported; configure execution providers "
                                       "in cpu_execution_accelerator");
    }
    const backend_kit::Places places(info.folder, backend.config);
    SessionSource source{model_file(info), label, read_settings(config, backend, places), {},
                         placed(config.cpu_accelerators, places)};
    for (const std::string& name : config.op_libraries) {
        source.op_libraries.push_back(places.existing(name, "op_library_filename"));
    }
    return source;
}

class OnnxModel final : public backend_kit::Model {
public:
    OnnxModel(ModelInfo given, SessionSource source, const Environment& environment, CancelWatch& watch,
              std::int64_t default_batch)
        : Model(std::move(given)),
          source_(std::move(source)),
          default_batch_(default_batch),
          shared_{environment, watch, config()},
          next_(make_session(0)),
          ports_(read_ports(next_->get(), environment.allocator())) {}

    bool complete(ModelConfig& config) override { return onnx_backend::complete(config, ports_, default_batch_); }

    void validate() override {
        shared_.plan = make_plan(config(), ports_);
        shared_.declared = std::vector<std::atomic<Declared>>(shared_.plan.outputs.size());
    }

    std::unique_ptr<backend_kit::Instance> make_instance(const backend_kit::InstanceInfo& instance) override {
        instance.refuse_gpu("choose execution providers by cpu_execution_accelerator");
        return std::make_unique<OnnxInstance>(shared_, session(), source_.settings);
    }

private:
    // The session of a new instance: the shared one, or, the first time, the one that the model was read with.
    std::shared_ptr<Session> session() {
        const std::lock_guard lock(mutex_);
        if (source_.settings.share_session) return next_;
        if (next_) return std::exchange(next_, nullptr);
        return make_session(++further_);
    }

    std::shared_ptr<Session> make_session(int number) const {
        SessionSource source = source_;
        if (auto& prefix = source.settings.profile_prefix) {
            prefix->append("_").append(info().name);
            if (number > 0) prefix->append("_").append(std::to_string(number));
        }
        const std::string name = info().name + " " + std::to_string(info().version);
        return std::make_shared<Session>(shared_.environment, source, name);
    }

    SessionSource source_;
    std::int64_t default_batch_;
    Shared shared_;
    std::mutex mutex_;
    std::shared_ptr<Session> next_;
    int further_ = 0;  // sessions after the first
    Ports ports_;
};

class OnnxBackend final : public backend_kit::Backend {
public:
    explicit OnnxBackend(backend_kit::BackendInfo given)
        : Backend(std::move(given)), environment_(read_thread_pools(info())) {
        for (const std::string& each : library().skipped) backend_kit::log_info("skipped " + each);
        backend_kit::log_info("ONNX Runtime " + library().version + " from " + library().path);
    }

    std::unique_ptr<backend_kit::Model> make_model(ModelInfo model) override {
        SessionSource source = session_source(model, info());
        if (environment_.global_threads() &&
            (model.config.parameters.contains("intra_op_thread_count") ||
             model.config.parameters.contains("inter_op_thread_count"))) {
            backend_kit::log_warning("model " + model.name + ": the numbers of threads have no effect, since all models "
                                     "share the pool of enable-global-threadpool");
        }
        return std::make_unique<OnnxModel>(std::move(model), std::move(source), environment_, watch_,
                                           info().config.default_max_batch_size());
    }

private:
    Environment environment_;
    CancelWatch watch_;
};

}  // namespace
}  // namespace onnx_backend

BACKEND_KIT_ENTRY_POINTS(onnx_backend::OnnxBackend)
