// A binding that stays between runs: for small tensors it costs more to make and bind them for each request than to copy
// their bytes to where a bound tensor lies already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend_kit/batch.hpp"
#include "ports.hpp"
#include "runtime.hpp"

namespace onnx_backend {

// What a batch brings, by place in the configuration.
struct Inputs {
    std::vector<std::optional<backend_kit::Tensor>> tensors;  // nothing for an input that the requests leave out
    std::vector<Dims> shapes;                                 // as the model has them
};

// Tensors of numbers at places of its own, bound to a session for all runs with inputs of the same shapes.
class KeptBinding {
public:
    // Bytes of the largest tensor that is kept.
    static constexpr std::size_t most = 4096;

    // `config` and `plan` outlive it. The session computes in the memory of the CPU.
    KeptBinding(const Environment& environment, const backend_kit::ModelConfig& config, const Plan& plan,
                OrtSession* session);

    OrtIoBinding* get() const noexcept { return binding_.get(); }

    // Copies the inputs to their places. False if this binding is not for them: one is left out, has texts, or is too
    // large, or an output may be.
    bool take(const Inputs& inputs);
    // Copies the outputs to the responses.
    void give(backend_kit::Batch& batch) const;

private:
    struct Place {
        alignas(64) std::byte bytes[most];
    };
    struct Output {
        Place place;
        Dims shape;
    };

    bool bind(const std::vector<Dims>& shapes);
    bool find_output_shapes(const std::vector<Dims>& inputs);

    const Environment& environment_;
    const backend_kit::ModelConfig& config_;
    const Plan& plan_;
    IoBinding binding_;
    std::vector<Place> inputs_;
    std::vector<Output> outputs_;
    std::optional<std::vector<Dims>> bound_;  // shapes of the inputs that are bound
};

}  // namespace onnx_backend
