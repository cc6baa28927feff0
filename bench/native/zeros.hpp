// An answer that costs nothing to compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend_kit/backend.hpp"

namespace bench {

// Answers each request with zeros of the configured shape, without reading the inputs.
class Zeros {
public:
    explicit Zeros(const backend_kit::ModelConfig& config) : config_(config) {}

    void give(backend_kit::Batch& batch) {
        for (const backend_kit::TensorConfig& output : config_.outputs) {
            std::vector<std::int64_t> shape = output.model_dims();
            if (config_.batching()) shape.insert(shape.begin(), batch.size());
            zeros_.resize(backend_kit::tensor_size(output.datatype, shape));
            batch.scatter(output.name, output.datatype, shape, zeros_.data());
        }
    }

private:
    const backend_kit::ModelConfig& config_;
    std::vector<std::byte> zeros_;
};

}  // namespace bench
