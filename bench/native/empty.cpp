// A backend that answers each request with zeros of the configured shape, without a look at the inputs.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend_kit/backend.hpp"

namespace {

using namespace backend_kit;

class EmptyInstance : public Instance {
public:
    explicit EmptyInstance(const ModelConfig& config) : config_(config) {}

    void run(Batch& batch) override {
        for (const TensorConfig& output : config_.outputs) {
            std::vector<std::int64_t> shape = output.model_dims();
            if (config_.batching()) shape.insert(shape.begin(), batch.size());
            zeros_.resize(tensor_size(output.datatype, shape));
            batch.scatter(output.name, output.datatype, shape, zeros_.data());
        }
    }

private:
    const ModelConfig& config_;
    std::vector<std::byte> zeros_;
};

class EmptyModel : public Model {
public:
    using Model::Model;
    std::unique_ptr<Instance> make_instance(const InstanceInfo&) override {
        return std::make_unique<EmptyInstance>(config());
    }
};

class EmptyBackend : public Backend {
public:
    using Backend::Backend;
    std::unique_ptr<Model> make_model(ModelInfo info) override { return std::make_unique<EmptyModel>(std::move(info)); }
};

}  // namespace

BACKEND_KIT_ENTRY_POINTS(EmptyBackend)
