// A backend that makes the minimal call of ONNX Runtime (onnxruntime_call.hpp), with its own numbers, and answers with
// zeros: the cost of the server and the call when nothing is added to them.
#include <memory>
#include <string>
#include <utility>

#include "onnxruntime_call.hpp"
#include "zeros.hpp"

namespace {

using namespace backend_kit;

std::vector<std::int64_t> one_row(const ModelConfig& config) {
    std::vector<std::int64_t> shape = config.inputs[0].model_dims();
    if (config.batching()) shape.insert(shape.begin(), 1);
    return shape;
}

class CallingInstance : public Instance {
public:
    CallingInstance(const bench::Runtime& runtime, const ModelConfig& config)
        : call_(runtime, one_row(config)), zeros_(config) {}

    void run(Batch& batch) override {
        call_();
        zeros_.give(batch);
    }

private:
    bench::Call call_;
    bench::Zeros zeros_;
};

class CallingModel : public Model {
public:
    explicit CallingModel(ModelInfo given) : Model(std::move(given)), runtime_((info().folder + "/model.onnx").c_str()) {}

    std::unique_ptr<Instance> make_instance(const InstanceInfo&) override {
        return std::make_unique<CallingInstance>(runtime_, config());
    }

private:
    bench::Runtime runtime_;
};

class CallingBackend : public Backend {
public:
    using Backend::Backend;
    std::unique_ptr<Model> make_model(ModelInfo info) override {
        return std::make_unique<CallingModel>(std::move(info));
    }
};

}  // namespace

BACKEND_KIT_ENTRY_POINTS(CallingBackend)
