// AOTInductor packages.
#include "network.hpp"

#if __has_include(<torch/csrc/inductor/aoti_package/model_package_loader.h>)

#include <ATen/DynamicLibrary.h>
#include <ATen/ops/cat.h>
#include <sys/utsname.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>

#include "backend_kit/config.hpp"
#include "backend_kit/error.hpp"
#include "backend_kit/json.hpp"
#include "runtime.hpp"
#include "unpacked.hpp"
#include "values.hpp"

namespace torch_backend {
namespace {

using backend_kit::invalid_argument;
using backend_kit::Json;
using backend_kit::JsonView;
using torch::inductor::AOTIModelContainerRunner;
using torch::inductor::AOTIModelPackageLoader;

// Calls of the compiled library that the runner has no method for.
class Library : private AOTIModelContainerRunner {
public:
    static std::size_t inputs(AOTIModelContainerRunner& runner) {
        return count(runner, "AOTInductorModelContainerGetNumInputs");
    }
    static std::size_t outputs(AOTIModelContainerRunner& runner) {
        return count(runner, "AOTInductorModelContainerGetNumOutputs");
    }

private:
    static std::size_t count(AOTIModelContainerRunner& runner, const char* function) {
        using Count = decltype(&AOTInductorModelContainerGetNumInputs);
        const auto call = reinterpret_cast<Count>((runner.*(&Library::model_so_))->sym(function));
        std::size_t result = 0;
        if (call(runner.*(&Library::container_handle_), &result) != 0) {
            throw backend_kit::internal_error(std::string(function) + " failed");
        }
        return result;
    }
};

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::string metadata_of(const Json& metadata, const char* key) {
    return JsonView(metadata, "metadata of the package").string_or(key, "");
}

// A package holds machine code: refuses one for another system before the loader opens it.
void check_platform(const Json& metadata) {
    utsname here{};
    uname(&here);
    const std::string platform = metadata_of(metadata, "AOTI_PLATFORM");
    const std::string machine = metadata_of(metadata, "AOTI_MACHINE");
    if ((!platform.empty() && platform != lower(here.sysname)) || (!machine.empty() && machine != here.machine)) {
        throw backend_kit::unsupported("the package was compiled for " + platform + " on " + machine + ", this is " +
                                       lower(here.sysname) + " on " + here.machine);
    }
}

at::Device device_of(const Json& metadata, const Settings& settings) {
    const std::string compiled = metadata_of(metadata, "AOTI_DEVICE_KEY");
    if (compiled != "cpu" && compiled != "mps") {
        throw backend_kit::unsupported("the package was compiled for the device '" + compiled +
                                       "', only cpu and mps are served");
    }
    const bool metal = compiled == "mps";
    const Device asked = settings.device.value_or(Device::best);
    if (asked != Device::best && (asked == Device::mps) != metal) {
        throw invalid_argument("DEVICE is " + std::string(metal ? "cpu" : "mps") +
                               ", but the package was compiled for " + compiled);
    }
    return resolve(metal ? Device::mps : Device::cpu);
}

// The leaves of a specification written by torch.utils._pytree (treespec_dumps, protocol 1).
class TreeReader {
public:
    std::vector<std::string> names;

    void read(const JsonView& node, const std::string& name) {
        const auto children = node.find("children_spec");
        const std::vector<JsonView> items = children ? children->items() : std::vector<JsonView>();
        if (!node.find("type")) {
            names.push_back(name);
            return;
        }
        const std::vector<std::string> keys = keys_of(node);
        for (std::size_t i = 0; i < items.size(); ++i) {
            read(items[i], inner_name(name, i < keys.size() ? keys[i] : std::string(), i));
        }
    }

private:
    // The keys of a dictionary: its context is a JSON list of them as text.
    static std::vector<std::string> keys_of(const JsonView& node) {
        const std::string type = node.string_or("type", "");
        const std::string context = node.string_or("context", "");
        std::vector<std::string> keys;
        if (type != "builtins.dict" && type != "collections.OrderedDict") return keys;
        const backend_kit::Json list = backend_kit::Json::parse(context);
        for (const JsonView& key : JsonView(list, "context").items()) {
            keys.push_back(key.value().string() != nullptr ? key.string() : std::string());
        }
        return keys;
    }
};

std::vector<std::string> names_of(const std::string& specification) {
    const backend_kit::Json document = backend_kit::Json::parse(specification);
    TreeReader reader;
    const std::vector<JsonView> parts = JsonView(document, "call specification").items();
    if (parts.size() == 2) reader.read(parts[1], {});
    return std::move(reader.names);
}

// Names of the inputs or outputs; those without a tensor (None, numbers) leave no trace in the compiled library, and
// then only the count is known.
std::vector<std::string> names_or_count(const std::string& specification, std::size_t count) {
    std::vector<std::string> names = names_of(specification);
    if (names.size() != count) names.assign(count, {});
    return names;
}

// A package has no names of positional arguments; the inputs of a configuration stored with it are in their order.
void name_after(const std::string& stored, std::vector<std::string>& names) {
    const auto config = backend_kit::ModelConfig::parse(stored);
    const bool unnamed = std::all_of(names.begin(), names.end(), [](const std::string& name) { return name.empty(); });
    if (!unnamed || config.inputs.size() != names.size()) return;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = config.inputs[i].name;
}

std::string list_text(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
        text += (text.empty() ? "" : ", ") + (name.empty() ? "Tensor" : name + ": Tensor");
    return "(" + text + ")";
}

class PackageNetwork final : public Network {
public:
    PackageNetwork(const std::string& path, const Settings& settings, std::size_t runners)
        : settings_(checked(settings)),
          package_(path),
          device_(checked_device(package_, settings)),
          needs_two_rows_(package_.libraries_contain("dim value is too small at 0, ") &&
                          package_.libraries_contain("expected it to be >= 2, ")),
          loader_(package_.folder(), "model", false, runners) {
        const Json metadata = package_.metadata();
        if (metadata.find("triton_config") != nullptr) stored_config_ = metadata_of(metadata, "triton_config");
        AOTIModelContainerRunner& runner = *loader_.get_runner();
        const std::vector<std::string> specification = runner.get_call_spec();
        auto inputs = names_or_count(specification.at(0), Library::inputs(runner));
        const auto outputs = names_or_count(specification.at(1), Library::outputs(runner));
        if (stored_config_) name_after(*stored_config_, inputs);
        for (const std::string& name : inputs) signature_.arguments.push_back({name, Form::tensor, false});
        signature_.leaves.emplace();
        for (const std::string& name : outputs) signature_.leaves->push_back({name, std::nullopt});
        signature_.text = "the compiled package " + list_text(inputs) + " -> " + list_text(outputs);
    }

    std::unique_ptr<Runner> make_runner() override;

    std::vector<Output> run(std::span<const Input> inputs, const std::vector<bool>& wanted) {
        try {
            const RunScope scope(settings_, device_);
            std::vector<at::Tensor> arguments(inputs.size());
            bool one_row = needs_two_rows_ && batched_ && !inputs.empty();
            for (std::size_t i = 0; i < inputs.size(); ++i) {
                arguments[places_[i].argument] = tensor_of(inputs[i], device_, false);
                one_row = one_row && inputs[i].shape[0] == 1;
            }
            const std::vector<at::Tensor> values = one_row ? call_one_row(arguments) : call(arguments);
            std::vector<Output> outputs(picks_.size());
            for (std::size_t i = 0; i < picks_.size(); ++i) {
                if (wanted[i]) outputs[i] = output_of(values.at(picks_[i].index), picks_[i].name);
            }
            return outputs;
        } catch (...) {
            rethrow("the model failed");
        }
    }

private:
    static const Settings& checked(const Settings& settings) {
        if (settings.weight_sharing == false) {
            throw backend_kit::unsupported(
                "ENABLE_WEIGHT_SHARING is false, but the instances of a compiled package always share its weights");
        }
        if (settings.method != "forward") {
            throw backend_kit::unsupported("MODULE_METHOD_NAME is " + settings.method +
                                           ", but a compiled package has one method: the one that was exported");
        }
        return settings;
    }

    static at::Device checked_device(const Unpacked& package, const Settings& settings) {
        // Unless this is set, the compiled code trusts its inputs: it would read beyond the end of one of a wrong type
        // or size.
        setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);
        const Json metadata = package.metadata();
        check_platform(metadata);
        return device_of(metadata, settings);
    }

    std::vector<at::Tensor> call(const std::vector<at::Tensor>& arguments) {
        std::vector<std::size_t> references;
        for (const at::Tensor& argument : arguments) references.push_back(argument.use_count());
        try {
            return loader_.boxed_run(std::vector<at::Tensor>(arguments));
        } catch (...) {
            drop_references(arguments, references);
            throw;
        }
    }

    // A library that refuses its inputs leaks the references to them.
    static void drop_references(const std::vector<at::Tensor>& arguments, const std::vector<std::size_t>& references) {
        for (std::size_t i = 0; i < arguments.size(); ++i) {
            for (std::size_t n = arguments[i].use_count(); n > references[i]; --n) {
                c10::raw::intrusive_ptr::decref(arguments[i].unsafeGetTensorImpl());
            }
        }
    }

    // torch.export assumes that a dynamic dimension is at least 2, and the compiled library checks that. A batch of one
    // row is then run as two equal rows.
    std::vector<at::Tensor> call_one_row(const std::vector<at::Tensor>& arguments) {
        std::vector<at::Tensor> doubled;
        for (const at::Tensor& argument : arguments) doubled.push_back(at::cat({argument, argument}));
        std::vector<at::Tensor> values = call(doubled);
        for (at::Tensor& value : values) {
            if (value.dim() > 0 && value.size(0) == 2) value = value.narrow(0, 0, 1);
        }
        return values;
    }

    Settings settings_;
    Unpacked package_;
    at::Device device_;
    // The library has the texts of its checks. A run to find out would write an error to the server's output.
    bool needs_two_rows_;
    AOTIModelPackageLoader loader_;
};

class PackageRunner final : public Runner {
public:
    explicit PackageRunner(PackageNetwork& network) : network_(network) {}

    std::vector<Output> run(std::span<const Input> inputs, const std::vector<bool>& wanted) override {
        return network_.run(inputs, wanted);
    }

private:
    PackageNetwork& network_;
};

std::unique_ptr<Runner> PackageNetwork::make_runner() {
    return std::make_unique<PackageRunner>(*this);
}

}  // namespace

std::unique_ptr<Network> load_package(const std::string& path, const Settings& settings, std::size_t runners) {
    // Its reader of JSON has one buffer per process (load_json_file in LibTorch's model_package_loader.cpp).
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    try {
        return std::make_unique<PackageNetwork>(path, settings, runners);
    } catch (...) {
        rethrow("cannot load " + path + " as an AOTInductor package");
    }
}

}  // namespace torch_backend

#else

#include "backend_kit/error.hpp"

namespace torch_backend {

std::unique_ptr<Network> load_package(const std::string& path, const Settings&, std::size_t) {
    throw backend_kit::unsupported(
        "cannot load " + path +
        ": this LibTorch has no loader for AOTInductor packages; save the model as TorchScript");
}

}  // namespace torch_backend

#endif
