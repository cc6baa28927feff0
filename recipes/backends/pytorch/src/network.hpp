// A loaded model without its LibTorch types, for the Triton side of the backend.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "settings.hpp"
#include "signature.hpp"

namespace torch_backend {

// One configured input of a run. `data` is borrowed until run() returns.
struct Input {
    bool present = false;
    DataType type = TRITONSERVER_TYPE_INVALID;
    std::span<const std::int64_t> shape;
    void* data = nullptr;                   // not for BYTES
    std::vector<std::string_view> texts{};  // BYTES only, row after row
};

// One configured output of a run; `owner` keeps `data` alive.
struct Output {
    DataType type = TRITONSERVER_TYPE_INVALID;
    std::vector<std::int64_t> shape;  // BYTES: the number of texts; one number without dimensions: empty
    const void* data = nullptr;
    std::vector<std::string> texts;
    std::shared_ptr<const void> owner;
};

// A configured name with its type and shape in one call.
struct Sample {
    std::string name;
    DataType type = TRITONSERVER_TYPE_INVALID;
    std::vector<std::int64_t> shape;
};

// One call that is stored in the model, and the model's answer.
struct Example {
    std::vector<Sample> inputs;
    std::vector<Sample> outputs;
};

// Runs a model for one instance, which has a state of its own.
class Runner {
public:
    Runner() = default;
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;
    virtual ~Runner() = default;

    // Runs the model on the inputs in the order of bind() and gives the outputs in that order; those not wanted stay
    // empty. The outputs may be views of the state: they hold until the next run. Throws backend_kit::Error with what
    // the model or LibTorch says.
    virtual std::vector<Output> run(std::span<const Input> inputs, const std::vector<bool>& wanted) = 0;
};

class Network {
public:
    Network() = default;
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;
    virtual ~Network() = default;

    const Signature& signature() const { return signature_; }

    // The text that was stored with the model as "triton_config".
    const std::optional<std::string>& stored_config() const { return stored_config_; }

    // The calls stored in the model, run once each. Throws backend_kit::Error if one fails.
    virtual std::vector<Example> examples() { return {}; }

    // Decides which input and output is which; call it before the first run.
    virtual void bind(std::span<const Port> inputs, std::span<const Port> outputs, bool batched) {
        places_ = place_inputs(signature_, inputs, batched);
        picks_ = pick_outputs(signature_, outputs);
        batched_ = batched;
    }

    // Makes what one instance of the model runs; after bind(). It must not outlive the network. May be called from
    // several threads at once.
    virtual std::unique_ptr<Runner> make_runner() = 0;

protected:
    Signature signature_;
    std::optional<std::string> stored_config_;
    std::vector<Place> places_;
    std::vector<Pick> picks_;
    bool batched_ = false;
};

// Loads a TorchScript file.
std::unique_ptr<Network> load_script(const std::string& path, const Settings& settings);

// Loads an AOTInductor package for `runners` runs at a time.
std::unique_ptr<Network> load_package(const std::string& path, const Settings& settings, std::size_t runners);

// Returns whether the Metal device of this machine can be used.
bool mps_available();

// Applies settings of which LibTorch has one per process. Throws backend_kit::Error if a value can no longer be set.
void set_process_wide(const Settings& settings);

// Throws backend_kit::Error (unsupported) for a data type that this LibTorch does not have.
void check_type(const Port& port);

}  // namespace torch_backend
