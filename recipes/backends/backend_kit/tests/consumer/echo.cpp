// A backend that answers each request with its input x as output y.
#include "backend_kit/backend.hpp"

namespace {

using namespace backend_kit;

class EchoInstance : public Instance {
public:
    void run(Batch& batch) override {
        const Tensor x = batch.gather("x");
        batch.scatter("y", x.datatype, x.shape, x.data);
    }
};

class EchoModel : public Model {
public:
    using Model::Model;
    std::unique_ptr<Instance> make_instance(const InstanceInfo&) override { return std::make_unique<EchoInstance>(); }
};

class EchoBackend : public Backend {
public:
    using Backend::Backend;
    std::unique_ptr<Model> make_model(ModelInfo info) override { return std::make_unique<EchoModel>(std::move(info)); }
};

}  // namespace

BACKEND_KIT_ENTRY_POINTS(EchoBackend)
