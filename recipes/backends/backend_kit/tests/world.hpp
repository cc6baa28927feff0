// A backend for tests, loaded into the fake server, and requests for it.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend_kit/backend.hpp"
#include "fake_triton.hpp"

namespace testing {

using namespace backend_kit;

// Behaviour of the backend under test; empty functions do nothing.
struct Behaviour {
    std::function<void(const BackendInfo&)> on_backend;
    std::function<void(const ModelInfo&)> on_model;
    std::function<bool(ModelConfig&)> on_complete;
    std::function<void(const ModelConfig&)> on_validate;
    std::function<void(const InstanceInfo&)> on_instance;
    std::function<void(Batch&)> on_run;
    int alive = 0;  // objects of the backend
};

extern Behaviour behaviour;

// A configuration from inputs and outputs in short form: "x FP32 -1,3", or "x FP32 -1,3 optional".
std::string config_text(int max_batch_size, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& more = "");

// Throws the error that a function of the backend returned.
void check_call(TRITONSERVER_Error* error);

// Backend, one model, one instance. The destructor checks that everything is gone afterwards, and otherwise ends the
// program.
class World {
public:
    explicit World(const std::string& config = config_text(8, {"x FP32 -1"}, {"y FP32 -1"}));
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    // Loads everything not loaded yet. Throws the Error of the first function that fails; close() cleans up after it.
    void load();
    void close();

    TRITONSERVER_Error* execute(std::vector<TRITONBACKEND_Request>& requests);

    TRITONBACKEND_Backend backend;
    TRITONBACKEND_Model model;
    TRITONBACKEND_ModelInstance instance;

private:
    bool backend_loaded_ = false;
    bool model_loaded_ = false;
    bool instance_loaded_ = false;
};

template <typename Element>
TRITONBACKEND_Input input_of(const std::string& name, DataType datatype, std::vector<std::int64_t> shape,
                             const std::vector<Element>& data) {
    return {name, datatype, std::move(shape), {{data.data(), data.size() * sizeof(Element), TRITONSERVER_MEMORY_CPU}}};
}

// A request with the input x of shape [rows, columns]; x must outlive it.
TRITONBACKEND_Request floats(const std::vector<float>& data, std::int64_t rows);

std::vector<float> floats_of(const TRITONBACKEND_Output& output);

// Copies x to y.
void echo(Batch& batch);

}  // namespace testing
