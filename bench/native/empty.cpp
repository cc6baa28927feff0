// A backend that answers with zeros.
#include <memory>
#include <utility>

#include "zeros.hpp"

namespace {

using namespace backend_kit;

class EmptyInstance : public Instance {
public:
    explicit EmptyInstance(const ModelConfig& config) : zeros_(config) {}

    void run(Batch& batch) override { zeros_.give(batch); }

private:
    bench::Zeros zeros_;
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
