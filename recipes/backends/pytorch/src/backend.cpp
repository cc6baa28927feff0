// The backend as Triton sees it: models, their instances, and batches of requests.
#include "backend_kit/backend.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "backend_kit/files.hpp"
#include "complete.hpp"
#include "network.hpp"
#include "operators.hpp"
#include "settings.hpp"

namespace torch_backend {
namespace {

using backend_kit::Batch;
using backend_kit::ModelConfig;
using backend_kit::TensorConfig;

bool exists(const std::string& path) {
    return std::ifstream(path).good();
}

// The end of a file, where a zip archive lists its members.
std::string tail_of(const std::string& path) {
    constexpr std::streamoff most = 1 << 20;
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = file.tellg();
    std::string tail(static_cast<std::size_t>(std::max<std::streamoff>(0, std::min(size, most))), '\0');
    file.seekg(-static_cast<std::streamoff>(tail.size()), std::ios::end);
    file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
    return tail;
}

// The server fills in default_model_filename with "model.pt" for a backend of this name, so that name says nothing.
std::string model_file(const backend_kit::ModelInfo& info) {
    const std::string& name = info.config.default_model_filename;
    if (!name.empty() && name != "model.pt") {
        return backend_kit::named_file(info.folder, name, "default_model_filename");
    }
    for (const std::string each : {"model.pt", "model.pt2"}) {
        if (exists(info.folder + "/" + each)) return backend_kit::named_file(info.folder, each, "the model's file");
    }
    throw backend_kit::not_found("no model file: " + info.folder + " has neither model.pt nor model.pt2");
}

// Returns whether a file is an AOTInductor package: by the members of the archive, else by its suffix.
bool is_package(const std::string& path) {
    const std::string members = tail_of(path);
    if (members.find("data/aotinductor/") != std::string::npos) return true;
    if (members.find("/constants.pkl") != std::string::npos) return false;
    if (members.find("models/model.json") != std::string::npos) {
        throw backend_kit::unsupported(path +
                                       " is an exported program that was not compiled; make a package of it with "
                                       "torch._inductor.aoti_compile_and_package");
    }
    // torch.save writes the same archive, without code.
    if (members.find("/data.pkl") != std::string::npos) {
        throw backend_kit::unsupported(
            path + " was written by torch.save (a pickle), which needs Python to be read; save the module with "
                   "torch.jit.script(module).save(...) or torch.jit.trace(...), or compile it with "
                   "torch._inductor.aoti_compile_and_package");
    }
    return path.ends_with(".pt2");
}

std::size_t instance_count(const ModelConfig& config) {
    std::int64_t count = 0;
    for (const auto& group : config.instance_groups) count += group.count;
    return count < 1 ? 1 : static_cast<std::size_t>(count);
}

bool has_fp64(const std::vector<TensorConfig>& ports) {
    for (const TensorConfig& port : ports) {
        if (port.datatype == TRITONSERVER_TYPE_FP64) return true;
    }
    return false;
}

// Metal has no FP64: an automatic choice avoids it, a fixed one is refused.
void settle_device(Settings& settings, const ModelConfig& config) {
    if (!settings.device || *settings.device == Device::cpu) return;
    if (!has_fp64(config.all_inputs) && !has_fp64(config.all_outputs)) return;
    if (*settings.device == Device::mps) {
        throw backend_kit::unsupported("DEVICE is mps, which has no FP64; use FP32 or DEVICE cpu");
    }
    settings.device = Device::cpu;
}

std::unique_ptr<Network> load(const backend_kit::ModelInfo& info, const Settings& settings) {
    const std::string path = model_file(info);
    return is_package(path) ? load_package(path, settings, instance_count(info.config)) : load_script(path, settings);
}

std::vector<Port> ports_of(const std::vector<TensorConfig>& tensors) {
    std::vector<Port> ports;
    for (const TensorConfig& each : tensors) {
        ports.push_back({each.name, each.datatype, each.optional, each.model_dims()});
    }
    return ports;
}

// The shape of a BYTES output: a model gives a flat list of strings, the configuration says how they are laid out.
std::vector<std::int64_t> text_shape(const TensorConfig& port, std::int64_t count, bool batched, std::int64_t rows) {
    std::vector<std::int64_t> shape = port.model_dims();
    const std::int64_t each = batched && rows > 0 ? count / rows : count;
    if (batched && each * rows != count) {
        throw backend_kit::internal_error("output '" + port.name + "': " + std::to_string(count) +
                                          " texts cannot be split into " + std::to_string(rows) + " rows");
    }
    std::int64_t fixed = 1;
    std::int64_t* open = nullptr;
    int free = 0;
    for (std::int64_t& dim : shape) {
        if (dim < 0) {
            open = &dim;
            ++free;
        } else {
            fixed *= dim;
        }
    }
    if (free == 1 && fixed > 0 && each % fixed == 0) {
        *open = each / fixed;
    } else if (free != 0 || fixed != each) {
        shape = {each};
    }
    if (batched) shape.insert(shape.begin(), rows);
    return shape;
}

class PytorchInstance final : public backend_kit::Instance {
public:
    PytorchInstance(const ModelConfig& config, std::unique_ptr<Runner> runner)
        : config_(config), runner_(std::move(runner)) {}

    void run(Batch& batch) override {
        std::vector<backend_kit::Tensor> tensors(config_.all_inputs.size());
        std::vector<Input> inputs(config_.all_inputs.size());
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            if (!batch.has_input(config_.all_inputs[i].name)) continue;
            tensors[i] = batch.gather(config_.all_inputs[i].name);
            inputs[i] = input_of(tensors[i]);
        }
        std::vector<bool> wanted;
        for (const TensorConfig& output : config_.all_outputs) wanted.push_back(batch.wants(output.name));
        batch.begin_compute();
        const std::vector<Output> outputs = runner_->run(inputs, wanted);
        batch.end_compute();
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            if (wanted[i]) scatter(batch, config_.all_outputs[i], outputs[i]);
        }
    }

private:
    static Input input_of(const backend_kit::Tensor& tensor) {
        Input input{.present = true, .type = tensor.datatype, .shape = tensor.shape};
        if (tensor.datatype == TRITONSERVER_TYPE_BYTES) {
            input.texts = tensor.strings();
        } else {
            // LibTorch has no tensors over constant bytes; inputs that a model writes to are copied first.
            input.data = const_cast<std::byte*>(tensor.data);
        }
        return input;
    }

    void scatter(Batch& batch, const TensorConfig& port, const Output& output) const {
        if (output.type == TRITONSERVER_TYPE_BYTES && port.datatype == output.type) {
            const std::vector<std::string_view> texts(output.texts.begin(), output.texts.end());
            const auto count = static_cast<std::int64_t>(texts.size());
            batch.scatter(port.name, text_shape(port, count, config_.batching(), batch.size()), texts);
            return;
        }
        std::vector<std::int64_t> shape = output.shape;
        if (shape.empty() && !config_.batching() && !port.model_dims().empty()) shape = {1};
        batch.scatter(port.name, output.type, shape, output.data);
    }

    const ModelConfig& config_;
    std::unique_ptr<Runner> runner_;
};

class PytorchModel final : public backend_kit::Model {
public:
    PytorchModel(backend_kit::ModelInfo given, Settings settings, std::int64_t default_batch)
        : Model(std::move(given)), settings_(settings), default_batch_(default_batch) {
        settle_device(settings_, config());
        set_process_wide(settings_);
        load_operators(info());
        network_ = load(info(), settings_);
    }

    bool complete(ModelConfig& config) override { return torch_backend::complete(config, *network_, default_batch_); }

    void validate() override {
        const std::vector<Port> inputs = ports_of(config().all_inputs);
        const std::vector<Port> outputs = ports_of(config().all_outputs);
        if (config().outputs.empty()) {
            throw backend_kit::invalid_argument("the configuration has no outputs; write them to config.pbtxt");
        }
        settle_device(settings_, config());
        for (const auto* ports : {&inputs, &outputs}) {
            for (const Port& port : *ports) check_type(port);
        }
        network_->bind(inputs, outputs, config().batching());
    }

    std::unique_ptr<backend_kit::Instance> make_instance(const backend_kit::InstanceInfo& instance) override {
        instance.refuse_gpu("choose by the parameter DEVICE");
        return std::make_unique<PytorchInstance>(config(), network_->make_runner());
    }

private:
    Settings settings_;
    std::int64_t default_batch_;
    std::unique_ptr<Network> network_;
};

class PytorchBackend final : public backend_kit::Backend {
public:
    explicit PytorchBackend(backend_kit::BackendInfo given) : Backend(std::move(given)) { load_operators(info()); }

    std::unique_ptr<backend_kit::Model> make_model(backend_kit::ModelInfo model) override {
        const Settings settings = read_settings(model.config, info().config, info().name);
        return std::make_unique<PytorchModel>(std::move(model), settings, info().config.default_max_batch_size());
    }
};

}  // namespace
}  // namespace torch_backend

BACKEND_KIT_ENTRY_POINTS(torch_backend::PytorchBackend)
