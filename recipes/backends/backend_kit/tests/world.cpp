#include "world.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace testing {

Behaviour behaviour;

namespace {

struct Counted {
    Counted() { ++behaviour.alive; }
    ~Counted() { --behaviour.alive; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
};

class TestInstance : public Instance {
public:
    void run(Batch& batch) override {
        if (behaviour.on_run) {
            behaviour.on_run(batch);
        }
    }

private:
    Counted counted_;
};

class TestModel : public Model {
public:
    explicit TestModel(ModelInfo info) : Model(std::move(info)) {}
    bool complete(ModelConfig& config) override { return behaviour.on_complete && behaviour.on_complete(config); }
    void validate() override {
        if (behaviour.on_validate) {
            behaviour.on_validate(config());
        }
    }
    std::unique_ptr<Instance> make_instance(const InstanceInfo& info) override {
        if (behaviour.on_instance) {
            behaviour.on_instance(info);
        }
        return std::make_unique<TestInstance>();
    }

private:
    Counted counted_;
};

class TestBackend : public Backend {
public:
    explicit TestBackend(BackendInfo info) : Backend(std::move(info)) {
        if (behaviour.on_backend) {
            behaviour.on_backend(this->info());
        }
    }
    std::unique_ptr<Model> make_model(ModelInfo info) override {
        if (behaviour.on_model) {
            behaviour.on_model(info);
        }
        return std::make_unique<TestModel>(std::move(info));
    }

private:
    Counted counted_;
};

void append_tensors(std::string& text, const std::vector<std::string>& tensors) {
    const char* separator = "";
    for (const std::string& tensor : tensors) {
        std::istringstream words(tensor);
        std::string name;
        std::string type;
        std::string dims;
        std::string more;
        words >> name >> type >> dims >> more;
        text += separator;
        text += R"({"name":")" + name + R"(","data_type":"TYPE_)" + type + R"(","dims":[)" +
                (dims == "scalar" ? "" : dims) + "]";
        text += more == "optional" ? R"(,"optional":true})" : "}";
        separator = ",";
    }
}

}  // namespace

std::string config_text(int max_batch_size, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& more) {
    std::string text = R"({"name":"m","backend":"testing","max_batch_size":)" + std::to_string(max_batch_size);
    text += R"(,"input":[)";
    append_tensors(text, inputs);
    text += R"(],"output":[)";
    append_tensors(text, outputs);
    return text + "]" + more + "}";
}

void check_call(TRITONSERVER_Error* error) { check(error); }

World::World(const std::string& config) {
    fake::server = fake::Server{};
    model.backend = &backend;
    model.config = config;
    instance.model = &model;
}

World::~World() {
    close();
    const auto& server = fake::server;
    if (server.errors != 0 || server.messages != 0 || server.responses != 0 || behaviour.alive != 0) {
        std::fprintf(stderr, "left over after %s: %d errors, %d messages, %d responses, %d objects\n",
                     server.failed.c_str(), server.errors, server.messages, server.responses, behaviour.alive);
        std::abort();
    }
    behaviour = Behaviour{};
}

void World::load() {
    if (!backend_loaded_) {
        check_call(TRITONBACKEND_Initialize(&backend));
        backend_loaded_ = true;
    }
    if (!model_loaded_) {
        check_call(TRITONBACKEND_ModelInitialize(&model));
        model_loaded_ = true;
    }
    if (!instance_loaded_) {
        check_call(TRITONBACKEND_ModelInstanceInitialize(&instance));
        instance_loaded_ = true;
    }
}

void World::close() {
    if (std::exchange(instance_loaded_, false)) {
        if (TRITONSERVER_Error* error = TRITONBACKEND_ModelInstanceFinalize(&instance)) {
            TRITONSERVER_ErrorDelete(error);  // the one injected fault: nothing was freed, and the next try works
            check_call(TRITONBACKEND_ModelInstanceFinalize(&instance));
        }
    }
    if (std::exchange(model_loaded_, false)) {
        if (TRITONSERVER_Error* error = TRITONBACKEND_ModelFinalize(&model)) {
            TRITONSERVER_ErrorDelete(error);
            check_call(TRITONBACKEND_ModelFinalize(&model));
        }
    }
    if (std::exchange(backend_loaded_, false)) {
        if (TRITONSERVER_Error* error = TRITONBACKEND_Finalize(&backend)) {
            TRITONSERVER_ErrorDelete(error);
            check_call(TRITONBACKEND_Finalize(&backend));
        }
    }
}

TRITONSERVER_Error* World::execute(std::vector<TRITONBACKEND_Request>& requests) {
    std::vector<TRITONBACKEND_Request*> pointers;
    for (TRITONBACKEND_Request& request : requests) {
        pointers.push_back(&request);
    }
    return TRITONBACKEND_ModelInstanceExecute(&instance, pointers.data(), static_cast<std::uint32_t>(pointers.size()));
}

TRITONBACKEND_Request floats(const std::vector<float>& data, std::int64_t rows) {
    const auto columns = rows == 0 ? 0 : static_cast<std::int64_t>(data.size()) / rows;
    TRITONBACKEND_Request request;
    request.inputs.push_back(input_of("x", TRITONSERVER_TYPE_FP32, {rows, columns}, data));
    return request;
}

std::vector<float> floats_of(const TRITONBACKEND_Output& output) {
    std::vector<float> result(output.data.size() / sizeof(float));
    if (!result.empty()) {
        std::memcpy(result.data(), output.data.data(), output.data.size());
    }
    return result;
}

void echo(Batch& batch) {
    const Tensor x = batch.gather("x");
    batch.begin_compute();
    batch.end_compute();
    batch.scatter("y", x.datatype, x.shape, x.data);
}

}  // namespace testing

BACKEND_KIT_ENTRY_POINTS(testing::TestBackend)
