// Sequence batching: controls, states, and the requests that fill empty slots.
#include <array>

#include "testing.hpp"
#include "world.hpp"

using namespace testing;

namespace {

std::string control(const std::string& name, const std::string& fields) {
    return R"({"name":")" + name + R"(","control":[{)" + fields + "}]}";
}

std::string state(const std::string& input, const std::string& output, const std::string& dims = "2",
                  const std::string& more = "") {
    return R"({"input_name":")" + input + R"(","output_name":")" + output +
           R"(","data_type":"TYPE_FP32","dims":[)" + dims + "]" + more + "}";
}

std::string sequences(const std::string& controls, const std::string& states, const std::string& more = "") {
    return R"(,"sequence_batching":{"control_input":[)" + controls + R"(],"state":[)" + states + "]" + more + "}";
}

// A sum of x over the sequence: y and the state h2 are x + h.
std::string summing(int max_batch_size = 8, const std::string& dims = "2", const std::string& more = "") {
    return config_text(max_batch_size, {"x FP32 -1"}, {"y FP32 -1"}, sequences("", state("h", "h2", dims, more)));
}

void sum(Batch& batch) {
    const Tensor x = batch.gather("x");
    const Tensor h = batch.gather("h");
    std::vector<float> result(x.size / sizeof(float));
    for (std::size_t index = 0; index < result.size(); ++index) {
        float value = 0;
        float kept = 0;
        std::memcpy(&value, x.data + 4 * index, 4);
        std::memcpy(&kept, h.data + 4 * index, 4);
        result[index] = value + kept;
    }
    batch.scatter("y", x.datatype, x.shape, result.data());
    batch.scatter("h2", x.datatype, x.shape, result.data());
    for (const float value : result) {
        if (value < 0) {
            throw std::runtime_error("poison");
        }
    }
}

TRITONBACKEND_Request step(const std::vector<float>& x, const std::vector<float>& h) {
    TRITONBACKEND_Request request = floats(x, 1);
    request.inputs.push_back(input_of("h", TRITONSERVER_TYPE_FP32, {1, static_cast<std::int64_t>(h.size())}, h));
    request.wanted = {"y"};
    return request;
}

std::vector<float> kept(const TRITONBACKEND_Request& request, std::size_t index = 0) {
    const std::vector<std::byte>& bytes = request.states.at(index).kept;
    std::vector<float> result(bytes.size() / sizeof(float));
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
}

void run(World& world, std::vector<TRITONBACKEND_Request>& requests, const std::function<void(Batch&)>& body) {
    behaviour.on_run = body;
    world.load();
    check_call(world.execute(requests));
}

const std::vector<float> one{1, 2};
const std::vector<float> ten{10, 20};
const std::vector<float> zero{0, 0};
const std::vector<float> eleven{11, 22};

}  // namespace

TEST(controls_and_states_are_read) {
    const ModelConfig config = ModelConfig::parse(config_text(
        8, {"x FP32 -1"}, {"y FP32 -1", "h2 FP32 2"},
        sequences(control("start", R"("kind":"CONTROL_SEQUENCE_START","int32_false_true":[0,1],"fp32_false_true":[])") +
                      "," + control("end", R"("kind":"CONTROL_SEQUENCE_END","fp32_false_true":[0,1])") + "," +
                      control("ready", R"("kind":"CONTROL_SEQUENCE_READY","bool_false_true":[false,true])") + "," +
                      control("id", R"("kind":"CONTROL_SEQUENCE_CORRID","data_type":"TYPE_STRING")"),
                  state("c", "c2", "-1", R"(,"initial_state":[{"data_type":"TYPE_FP32","dims":[3],"zero_data":true}])") +
                      "," + state("h", "h2"))));
    config.check_supported();
    CHECK_EQUAL(config.inputs.size(), 1U);
    CHECK_EQUAL(config.all_inputs.size(), 7U);
    const std::vector<SequenceControl>& controls = config.sequence_batching->controls;
    CHECK(controls[0].kind == ControlKind::start && controls[0].input.datatype == TRITONSERVER_TYPE_INT32);
    CHECK(controls[1].kind == ControlKind::end && controls[1].input.datatype == TRITONSERVER_TYPE_FP32);
    CHECK(controls[2].kind == ControlKind::ready && controls[2].input.datatype == TRITONSERVER_TYPE_BOOL);
    CHECK(controls[3].kind == ControlKind::correlation_id && controls[3].input.datatype == TRITONSERVER_TYPE_BYTES);
    CHECK_EQUAL(config.input("id")->role(), "control ");
    CHECK(config.input("id")->dims == (std::vector<std::int64_t>{1}));
    CHECK_EQUAL(config.input("c")->role(), "state ");
    CHECK_EQUAL(config.input("x")->role(), "");
    CHECK_EQUAL(config.outputs.size(), 2U);
    CHECK_EQUAL(config.all_outputs.size(), 3U);
    CHECK(!config.output("y")->state && config.output("h2")->state && config.output("c2")->state);
    CHECK(config.sequence_batching->states[0].initial_shape == (std::vector<std::int64_t>{1, 3}));
    CHECK(!config.sequence_batching->states[1].initial_shape);
}

TEST(a_configuration_without_sequences_has_the_inputs_and_outputs_alone) {
    const ModelConfig config = ModelConfig::parse(config_text(8, {"x FP32 -1"}, {"y FP32 -1"}));
    CHECK(!config.sequence_batching);
    CHECK(config.all_inputs.size() == 1 && config.all_outputs.size() == 1);
}

TEST(wrong_controls_are_told) {
    const auto parse = [](const std::string& controls) {
        return ModelConfig::parse(config_text(8, {}, {}, sequences(controls, "")));
    };
    const std::string start = "configuration of model m: config.sequence_batching.control_input[0]";
    CHECK_INVALID(start + ".control[0].kind is 'CONTROL_X', which is no kind of control",
                  parse(control("c", R"("kind":"CONTROL_X")")));
    CHECK_INVALID(start + ".control[0]: the control input 'c' has no type",
                  parse(control("c", R"("kind":"CONTROL_SEQUENCE_END","int32_false_true":[])")));
    CHECK_INVALID(start + ".control[0]: the control input 'c' has no type",
                  parse(control("c", R"("kind":"CONTROL_SEQUENCE_CORRID")")));
    CHECK_INVALID(start + ": the input 'c' needs one control and has 0", parse(R"({"name":"c","control":[]})"));
}

TEST(what_sequences_cannot_have_is_refused) {
    const auto checked = [](const std::string& more, const std::vector<std::string>& outputs = {"y FP32 -1"}) {
        ModelConfig::parse(config_text(8, {"x FP32 -1"}, outputs, more)).check_supported();
    };
    const auto unsupported = TRITONSERVER_ERROR_UNSUPPORTED;
    CHECK_ERROR(unsupported, "model m has sequence_batching.iterative_sequence, which this backend does not support",
                checked(sequences("", "", R"(,"iterative_sequence":true)")));
    for (const std::string field : {"use_same_buffer_for_input_output", "use_growable_memory"}) {
        CHECK_ERROR(unsupported,
                    "state 'h' of model m has " + field +
                        ", which this backend does not support: a request that fails must leave the state as it was",
                    checked(sequences("", state("h", "h2", "2", ",\"" + field + "\":true"))));
    }
    CHECK_INVALID("state input 'x' of model m is listed twice, also as input", checked(sequences("", state("x", "h2"))));
    CHECK_INVALID("state input 'h' of model m is listed twice, also as control input",
                  checked(sequences(control("h", R"("int32_false_true":[0,1])"), state("h", "h2"))));
    CHECK_INVALID("state 'h' (output 'o') of model m has the output of another state",
                  checked(sequences("", state("g", "o") + "," + state("h", "o"))));
    CHECK_INVALID("state 'h' (output 'h2') of model m: the output has type TYPE_FP32 and dims [3], the state TYPE_FP32 "
                  "and [2]",
                  checked(sequences("", state("h", "h2")), {"h2 FP32 3"}));
    CHECK_INVALID("state 'h' (output 'h2') of model m has no data_type",
                  checked(sequences("", R"({"input_name":"h","output_name":"h2"})")));
}

TEST(states_that_the_server_would_mix_up_are_refused) {
    const auto checked = [](const std::string& states) {
        ModelConfig::parse(config_text(8, {"x FP32 -1"}, {"y FP32 -1"}, sequences("", states))).check_supported();
    };
    checked(state("b", "y2") + "," + state("a", "x2"));
    CHECK_ERROR(TRITONSERVER_ERROR_UNSUPPORTED,
                "state 'a' (output 'y2') of model m and state 'b' (output 'x2') of model m: Triton mixes up states "
                "unless the names of their inputs are in the same alphabetical order as those of their outputs; rename "
                "one",
                checked(state("b", "x2") + "," + state("a", "y2")));
}

TEST(a_model_with_sequences_needs_an_output) {
    World world(config_text(8, {"x FP32 -1"}, {}, sequences("", state("h", "h2"))));
    CHECK_INVALID("the configuration of model m has sequence_batching and no outputs", world.load());
}

TEST(controls_are_inputs_of_the_model) {
    World world(config_text(8, {"x FP32 -1"}, {"y FP32 -1"},
                            sequences(control("start", R"("int32_false_true":[0,1])") + "," +
                                          control("id", R"("kind":"CONTROL_SEQUENCE_CORRID","data_type":"TYPE_UINT64")"),
                                      "")));
    const std::vector<std::int32_t> start{1};
    const std::vector<std::uint64_t> id{77};
    std::vector<TRITONBACKEND_Request> requests{floats(one, 1), floats(ten, 1), floats(one, 1)};
    for (TRITONBACKEND_Request& request : requests) {
        request.wanted = {"y"};
        request.inputs.push_back(input_of("start", TRITONSERVER_TYPE_INT32, {1, 1}, start));
        request.inputs.push_back(input_of("id", TRITONSERVER_TYPE_UINT64, {1, 1}, id));
    }
    requests[2].inputs.pop_back();
    run(world, requests, [](Batch& batch) {
        CHECK_EQUAL(shape_text(batch.gather("start").shape), "[2,1]");
        CHECK_EQUAL(shape_text(batch.gather("id").shape), "[2,1]");
        echo(batch);
    });
    CHECK(requests[0].success && requests[1].success);
    CHECK_EQUAL(requests[2].message, "control input 'id' of model m is missing");
}

TEST(a_correlation_id_in_text_ends_where_its_length_says) {
    World world(config_text(
        8, {"x FP32 -1"}, {"y FP32 -1"},
        sequences(control("id", R"("kind":"CONTROL_SEQUENCE_CORRID","data_type":"TYPE_STRING")"), "")));
    std::vector<std::byte> name(132);  // Triton has room for 128 bytes, whatever the length
    name[0] = std::byte{2};
    name[4] = name[5] = std::byte{'a'};
    std::vector<TRITONBACKEND_Request> requests{floats(one, 1), floats(ten, 1)};
    for (TRITONBACKEND_Request& request : requests) {
        request.wanted = {"y"};
        request.inputs.push_back(input_of("id", TRITONSERVER_TYPE_BYTES, {1, 1}, name));
    }
    run(world, requests, [](Batch& batch) {
        CHECK(batch.gather("id").strings() == (std::vector<std::string_view>{"aa", "aa"}));
        echo(batch);
    });
    CHECK_EQUAL(requests[0].message, "");
}

TEST(states_are_kept_once_and_are_no_outputs) {
    World world(summing());
    std::vector<TRITONBACKEND_Request> requests{step(one, ten), step(one, zero)};
    run(world, requests, sum);
    for (const TRITONBACKEND_Request& request : requests) {
        CHECK_EQUAL(request.message, "");
        CHECK_EQUAL(request.outputs.size(), 1U);
        CHECK_EQUAL(request.states.size(), 1U);
        CHECK_EQUAL(request.states[0].updated, 1);
        CHECK_EQUAL(shape_text(request.states[0].kept_shape), "[1,2]");
        CHECK(request.states[0].datatype == TRITONSERVER_TYPE_FP32);
    }
    CHECK(kept(requests[0]) == eleven && kept(requests[1]) == one);
    CHECK(floats_of(requests[0].outputs[0]) == eleven);
}

TEST(a_state_that_is_an_output_too_goes_to_both) {
    World world(config_text(8, {"x FP32 -1"}, {"y FP32 -1", "h2 FP32 2"}, sequences("", state("h", "h2"))));
    std::vector<TRITONBACKEND_Request> requests{step(one, ten), step(one, zero)};
    requests[0].wanted = {"h2"};
    run(world, requests, sum);
    CHECK_EQUAL(requests[0].outputs.size(), 1U);
    CHECK_EQUAL(requests[0].outputs[0].name, "h2");
    CHECK(floats_of(requests[0].outputs[0]) == eleven && kept(requests[0]) == eleven);
    CHECK_EQUAL(requests[1].outputs.at(0).name, "y");
    CHECK(kept(requests[1]) == one);
}

TEST(a_state_is_computed_in_its_place_unless_it_goes_to_both) {
    World world(config_text(0, {"x FP32 2"}, {"y FP32 2", "c2 FP32 2"},
                            sequences("", state("c", "c2") + "," + state("h", "h2"))));
    std::vector<TRITONBACKEND_Request> requests(1);
    for (const char* name : {"x", "c", "h"}) {
        requests[0].inputs.push_back(input_of(name, TRITONSERVER_TYPE_FP32, {2}, ten));
    }
    requests[0].wanted = {"y", "c2"};
    run(world, requests, [](Batch& batch) {
        const std::array<std::int64_t, 1> shape{2};
        CHECK(batch.output_buffer("c2", TRITONSERVER_TYPE_FP32, shape) == nullptr);
        batch.scatter("c2", TRITONSERVER_TYPE_FP32, shape, one.data());
        for (const char* name : {"y", "h2"}) {
            CHECK(batch.wants(name));
            void* target = batch.output_buffer(name, TRITONSERVER_TYPE_FP32, shape);
            CHECK(target != nullptr);
            std::memcpy(target, eleven.data(), 8);
        }
    });
    CHECK_EQUAL(requests[0].message, "");
    CHECK(kept(requests[0], 0) == one && kept(requests[0], 1) == eleven);
}

TEST(a_failed_batch_keeps_each_state_once_from_the_run_alone) {
    World world(summing());
    const std::vector<float> bad{-50, 0};
    std::vector<TRITONBACKEND_Request> requests{step(one, ten), step(bad, zero), step(one, zero)};
    std::vector<std::size_t> sizes;
    run(world, requests, [&](Batch& batch) {
        sizes.push_back(batch.request_count());
        if (batch.request_count() == 3) {  // wrong states, which must not be kept
            const std::vector<float> wrong(6, 99);
            batch.scatter("h2", TRITONSERVER_TYPE_FP32, batch.gather("h").shape, wrong.data());
            throw std::runtime_error("once more");
        }
        sum(batch);
    });
    CHECK(sizes == (std::vector<std::size_t>{3, 1, 1, 1}));
    CHECK(kept(requests[0]) == eleven && kept(requests[2]) == one);
    CHECK_EQUAL(requests[0].states[0].updated, 1);
    CHECK_EQUAL(requests[1].message, "poison");
    CHECK_EQUAL(requests[1].states.at(0).updated, 0);
}

TEST(a_state_may_have_another_shape_when_it_is_computed_again) {
    World world(summing(8, "-1"));
    std::vector<TRITONBACKEND_Request> requests{step(one, ten), step(one, zero)};
    run(world, requests, [](Batch& batch) {
        echo(batch);
        if (batch.request_count() == 2) {
            batch.scatter("h2", TRITONSERVER_TYPE_FP32, std::vector<std::int64_t>{2, 1}, one.data());
            throw std::runtime_error("once more");
        }
        const std::vector<float> longer{1, 2, 3};
        batch.scatter("h2", TRITONSERVER_TYPE_FP32, std::vector<std::int64_t>{1, 3}, longer.data());
    });
    CHECK_EQUAL(requests[0].message, "");
    CHECK_EQUAL(shape_text(requests[0].states[0].kept_shape), "[1,3]");
    CHECK(kept(requests[0]) == (std::vector<float>{1, 2, 3}));
}

TEST(a_state_that_is_not_given_is_an_error) {
    World world(summing());
    std::vector<TRITONBACKEND_Request> requests{step(one, ten)};
    run(world, requests, echo);
    CHECK_EQUAL(requests[0].message, "model m gave no state output 'h2'");
    requests = {step(one, ten)};
    run(world, requests, [](Batch& batch) {
        sum(batch);
        sum(batch);
    });
    CHECK_EQUAL(requests[0].message, "output 'y' was given twice");
    requests = {step(one, ten)};
    run(world, requests, [](Batch& batch) {
        sum(batch);
        batch.scatter("h2", TRITONSERVER_TYPE_FP32, std::vector<std::int64_t>{1, 2}, one.data());
    });
    CHECK_EQUAL(requests[0].message, "state output 'h2' was given twice");
    CHECK_EQUAL(requests[0].states[0].updated, 0);
    requests = {step(one, ten)};
    run(world, requests, [](Batch& batch) {
        batch.scatter("h2", TRITONSERVER_TYPE_FP32, std::vector<std::int64_t>{1, 3}, one.data());
    });
    CHECK_EQUAL(requests[0].message, "state output 'h2' of model m: the model gives shape [1,3], expected [1,2]");
}

TEST(a_state_outside_cpu_memory_fails_alone) {
    World world(config_text(8, {"x FP32 -1"}, {"y FP32 -1"}, sequences("", state("h", "elsewhere"))));
    std::vector<TRITONBACKEND_Request> requests{step(one, ten)};
    run(world, requests, [](Batch& batch) {
        echo(batch);
        batch.scatter("elsewhere", TRITONSERVER_TYPE_FP32, std::vector<std::int64_t>{1, 2}, one.data());
    });
    CHECK_EQUAL(requests[0].message, "state output 'elsewhere' has to go to memory that the CPU cannot write");
    CHECK_EQUAL(requests[0].states.at(0).updated, 0);
}

TEST(an_initial_state_has_the_shape_of_the_configuration) {
    World world(summing(8, "-1", R"(,"initial_state":[{"dims":[2],"zero_data":true}])"));
    std::vector<TRITONBACKEND_Request> requests{step(one, ten)};
    requests[0].inputs[1].shape = {1, 1};  // what the server says, with the bytes of two elements
    run(world, requests, sum);
    CHECK_EQUAL(requests[0].message, "");
    CHECK(kept(requests[0]) == eleven);
    requests = {step(one, ten)};
    requests[0].inputs[1].shape = {1, 3};
    run(world, requests, sum);
    CHECK_EQUAL(requests[0].message, "");
}

TEST(empty_slots_run_with_the_others_and_give_nothing) {
    World world(summing());
    std::vector<TRITONBACKEND_Request> requests{step(zero, zero), step(one, ten), step(zero, zero)};
    requests[0].wanted.clear();
    requests[2].wanted.clear();
    run(world, requests, [](Batch& batch) {
        CHECK_EQUAL(batch.request_count(), 3U);
        CHECK(batch.cancelled(0) && !batch.cancelled(1) && batch.cancelled(2));
        sum(batch);
    });
    CHECK(kept(requests[1]) == eleven);
    for (const std::size_t index : {std::size_t{0}, std::size_t{2}}) {
        CHECK_EQUAL(requests[index].message, "");
        CHECK(requests[index].success && requests[index].sent == 1 && requests[index].released == 1);
        CHECK(requests[index].outputs.empty() && requests[index].states.empty());
    }
}

TEST(empty_slots_are_not_run_alone) {
    World world(summing());
    const std::vector<float> bad{-50, 0};
    std::vector<TRITONBACKEND_Request> requests{step(zero, zero), step(bad, zero)};
    requests[0].wanted.clear();
    std::vector<std::size_t> sizes;
    const auto counting = [&](Batch& batch) {
        sizes.push_back(batch.request_count());
        sum(batch);
    };
    run(world, requests, counting);
    CHECK(sizes == (std::vector<std::size_t>{2, 1}));
    CHECK_EQUAL(requests[0].message, "");
    CHECK_EQUAL(requests[1].message, "poison");
    requests = {step(zero, zero)};
    requests[0].wanted.clear();
    run(world, requests, counting);
    CHECK_EQUAL(sizes.size(), 2U);
    CHECK(requests[0].sent == 1 && requests[0].released == 1);
}
