// A binding that is kept between runs: for small tensors it costs more to create and bind them for each request than to
// copy their bytes to a tensor that is already bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend_kit/batch.hpp"
#include "ports.hpp"
#include "runtime.hpp"

namespace onnx_backend {

// The inputs of a batch, by place in the configuration.
struct Inputs {
    std::vector<std::optional<backend_kit::Tensor>> tensors;  // nothing for an input that the requests omit
    std::vector<Dims> shapes;                                 // as the model has them
};

// Tensors of numbers in its own memory, bound to a session for all runs with inputs of the same shapes.
class KeptBinding {
public:
    // Size in bytes of the largest tensor that is kept.
    static constexpr std::size_t most = 4096;

    // `config` and `plan` outlive it. The session computes in CPU memory.
    KeptBinding(const Environment& environment, const backend_kit::ModelConfig& config, const Plan& plan,
                OrtSession* session);

    OrtIoBinding* get() const noexcept { return binding_.get(); }

    // Copies the inputs to their places. Returns false if this binding cannot be used: an input is missing, has
    // strings, or is too large, or an output may be too large.
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
