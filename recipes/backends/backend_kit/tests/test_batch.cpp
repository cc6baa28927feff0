// Gathering inputs and scattering outputs.
#include <array>

#include "testing.hpp"
#include "world.hpp"

using namespace testing;

namespace {

// Runs requests in one call, which has to succeed, with a given run() of the backend.
void run(World& world, std::vector<TRITONBACKEND_Request>& requests, const std::function<void(Batch&)>& body) {
    behaviour.on_run = body;
    world.load();
    check_call(world.execute(requests));
}

std::string shape_of(const std::vector<std::int64_t>& shape) { return shape_text(shape); }

void check_success(const TRITONBACKEND_Request& request) {
    CHECK_EQUAL(request.message, "");
    CHECK(request.success && request.sent == 1 && request.released == 1);
}

std::vector<std::byte> encoded(const std::vector<std::string_view>& elements) {
    std::vector<std::byte> result(encoded_size(elements));
    encode_bytes(elements, result.data());
    return result;
}

}  // namespace

TEST(one_request_in_one_buffer_is_not_copied) {
    World world;
    const std::vector<float> data{1, 2, 3, 4, 5, 6};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 2)};
    run(world, requests, [&](Batch& batch) {
        const Tensor x = batch.gather("x");
        CHECK(static_cast<const void*>(x.data) == data.data());
        CHECK_EQUAL(x.size, 24U);
        CHECK_EQUAL(shape_of(x.shape), "[2,3]");
        CHECK(x.datatype == TRITONSERVER_TYPE_FP32);
        CHECK_EQUAL(batch.size(), 2);
        CHECK_EQUAL(batch.request_count(), 1U);
        batch.scatter("y", x.datatype, x.shape, x.data);
    });
    check_success(requests[0]);
    CHECK(floats_of(requests[0].outputs.at(0)) == data);
    CHECK_EQUAL(shape_of(requests[0].outputs[0].shape), "[2,3]");
}

TEST(adjacent_buffers_are_not_copied) {
    World world;
    const std::vector<float> data{1, 2, 3, 4, 5, 6};
    std::vector<TRITONBACKEND_Request> requests(2);
    for (std::size_t index = 0; index < 2; ++index) {
        requests[index].inputs.push_back({"x",
                                          TRITONSERVER_TYPE_FP32,
                                          {1, 3},
                                          {{&data[3 * index], 4, TRITONSERVER_MEMORY_CPU},
                                           {&data[3 * index + 1], 8, TRITONSERVER_MEMORY_CPU_PINNED}}});
    }
    run(world, requests, [&](Batch& batch) {
        CHECK(static_cast<const void*>(batch.gather("x").data) == data.data());
        echo(batch);
    });
    check_success(requests[1]);
    CHECK(floats_of(requests[1].outputs.at(0)) == (std::vector<float>{4, 5, 6}));
}

TEST(pieces_of_several_requests_become_one_aligned_tensor) {
    World world;
    const std::vector<float> first{1, 2};
    const std::vector<float> second_a{3};
    const std::vector<float> second_b{4, 5, 6};
    std::vector<TRITONBACKEND_Request> requests{floats(first, 1), floats(second_b, 1)};
    requests[1].inputs[0].shape = {2, 2};
    requests[1].inputs[0].buffers.insert(
        requests[1].inputs[0].buffers.begin(),
        {{second_a.data(), 4, TRITONSERVER_MEMORY_CPU}, {nullptr, 0, TRITONSERVER_MEMORY_CPU}});
    run(world, requests, [&](Batch& batch) {
        const Tensor x = batch.gather("x");
        CHECK_EQUAL(shape_of(x.shape), "[3,2]");
        CHECK_EQUAL(reinterpret_cast<std::uintptr_t>(x.data) % 64, 0U);
        CHECK_EQUAL(batch.size(), 3);
        CHECK_EQUAL(batch.size_of(0), 1);
        CHECK_EQUAL(batch.size_of(1), 2);
        echo(batch);
    });
    CHECK(floats_of(requests[0].outputs.at(0)) == first);
    CHECK(floats_of(requests[1].outputs.at(0)) == (std::vector<float>{3, 4, 5, 6}));
    CHECK_EQUAL(shape_of(requests[1].outputs[0].shape), "[2,2]");
}

TEST(unaligned_data_is_copied) {
    World world;
    alignas(4) std::array<std::byte, 9> memory{};
    const float value = 2.5F;
    std::memcpy(&memory[1], &value, 4);
    std::vector<TRITONBACKEND_Request> requests(1);
    requests[0].inputs.push_back({"x", TRITONSERVER_TYPE_FP32, {1, 1}, {{&memory[1], 4, TRITONSERVER_MEMORY_CPU}}});
    run(world, requests, [&](Batch& batch) {
        CHECK(batch.gather("x").data != &memory[1]);
        echo(batch);
    });
    CHECK(floats_of(requests[0].outputs.at(0)) == (std::vector<float>{2.5F}));
}

TEST(empty_tensors_go_through) {
    World world;
    std::vector<TRITONBACKEND_Request> requests{floats({}, 0), floats({}, 2)};
    requests[0].inputs[0].buffers.clear();
    run(world, requests, [](Batch& batch) {
        CHECK(batch.gather("x").data != nullptr);
        CHECK_EQUAL(batch.size(), 2);
        echo(batch);
    });
    check_success(requests[0]);
    CHECK_EQUAL(shape_of(requests[0].outputs.at(0).shape), "[0,0]");
    CHECK_EQUAL(shape_of(requests[1].outputs.at(0).shape), "[2,0]");
    CHECK(requests[0].outputs[0].has_buffer);
}

TEST(a_model_without_batch_dimension_takes_its_shapes_as_they_are) {
    World world(config_text(0, {"x FP32 2,-1", "s FP32 scalar"}, {"y FP32 -1"}));
    const std::vector<float> data{1, 2, 3, 4};
    const std::vector<float> scalar{9};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 2), floats(data, 2)};
    for (TRITONBACKEND_Request& request : requests) {
        request.inputs.push_back(input_of("s", TRITONSERVER_TYPE_FP32, {}, scalar));
    }
    int runs = 0;
    run(world, requests, [&](Batch& batch) {
        ++runs;
        CHECK_EQUAL(batch.size(), 1);
        CHECK_EQUAL(shape_of(batch.gather("x").shape), "[2,2]");
        const Tensor s = batch.gather("s");
        CHECK(s.shape.empty());
        batch.scatter("y", TRITONSERVER_TYPE_FP32, std::array<std::int64_t, 1>{1}, s.data);
    });
    CHECK_EQUAL(runs, 2);
    CHECK_EQUAL(world.instance.batches.size(), 2U);
    CHECK_EQUAL(world.instance.batches[0].size, 1U);
    CHECK(floats_of(requests[1].outputs.at(0)) == scalar);
}

TEST(reshaped_dimensions_are_used) {
    World world(R"({"name":"m","max_batch_size":2,)"
                R"("input":[{"name":"x","data_type":"TYPE_FP32","dims":[1],"reshape":{"shape":[]}}],)"
                R"("output":[{"name":"y","data_type":"TYPE_FP32","dims":[1],"reshape":{"shape":[]}}]})");
    const std::vector<float> data{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 2)};
    requests[0].inputs[0].shape = {2};
    run(world, requests, echo);
    check_success(requests[0]);
    CHECK_EQUAL(shape_of(requests[0].outputs.at(0).shape), "[2]");
}

TEST(strings_are_gathered_and_scattered) {
    World world(config_text(8, {"x STRING 2"}, {"y STRING 1"}));
    const std::vector<std::byte> first = encoded({"a", "bc"});
    const std::vector<std::byte> second = encoded({"", "d", "e", "f"});
    std::vector<TRITONBACKEND_Request> requests(2);
    requests[0].inputs.push_back(input_of("x", TRITONSERVER_TYPE_BYTES, {1, 2}, first));
    requests[1].inputs.push_back(input_of("x", TRITONSERVER_TYPE_BYTES, {2, 2}, second));
    run(world, requests, [](Batch& batch) {
        const std::vector<std::string_view> strings = batch.gather("x").strings();
        CHECK(strings == (std::vector<std::string_view>{"a", "bc", "", "d", "e", "f"}));
        const std::vector<std::string_view> results{"one", "", "three"};
        batch.scatter("y", std::array<std::int64_t, 2>{3, 1}, results);
    });
    check_success(requests[0]);
    CHECK(requests[0].outputs.at(0).data == encoded({"one"}));
    CHECK(requests[1].outputs.at(0).data == encoded({"", "three"}));
    CHECK_EQUAL(shape_of(requests[1].outputs[0].shape), "[2,1]");
    CHECK(requests[1].outputs[0].datatype == TRITONSERVER_TYPE_BYTES);
}

TEST(only_wanted_outputs_are_made) {
    World world(config_text(8, {"x FP32 -1"}, {"y FP32 -1", "z FP32 -1", "never FP32 -1"}));
    const std::vector<float> data{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
    requests[0].wanted = {"y"};
    requests[1].wanted = {"z", "y"};
    run(world, requests, [](Batch& batch) {
        CHECK(batch.wants("y") && batch.wants("z") && !batch.wants("never"));
        const Tensor x = batch.gather("x");
        batch.scatter("z", x.datatype, x.shape, x.data);
        batch.scatter("y", x.datatype, x.shape, x.data);
        batch.scatter("never", TRITONSERVER_TYPE_INT8, {}, nullptr);
    });
    check_success(requests[0]);
    check_success(requests[1]);
    CHECK_EQUAL(requests[0].outputs.size(), 1U);
    CHECK_EQUAL(requests[0].outputs[0].name, "y");
    CHECK_EQUAL(requests[1].outputs.size(), 2U);
}

TEST(a_failed_request_wants_no_outputs) {
    World world;
    const std::vector<float> data{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
    run(world, requests, [](Batch& batch) {
        batch.fail(0, internal_error("no"));
        CHECK(batch.wants("y"));
        echo(batch);
        batch.fail(1, internal_error("neither"));
        CHECK(!batch.wants("y"));
    });
    CHECK_EQUAL(requests[0].message, "no");
    CHECK(requests[0].outputs.empty());
    CHECK_EQUAL(requests[1].message, "neither");
    CHECK_EQUAL(requests[1].outputs.size(), 1U);
}

TEST(a_single_request_computes_into_its_response) {
    World world;
    const std::vector<float> data{1, 2, 3};
    std::vector<TRITONBACKEND_Request> one{floats(data, 1)};
    run(world, one, [&](Batch& batch) {
        const Tensor x = batch.gather("x");
        void* target = batch.output_buffer("y", x.datatype, x.shape);
        CHECK(target != nullptr);
        std::memcpy(target, x.data, x.size);
    });
    check_success(one[0]);
    CHECK(floats_of(one[0].outputs.at(0)) == data);

    std::vector<TRITONBACKEND_Request> two{floats(data, 1), floats(data, 1)};
    run(world, two, [&](Batch& batch) {
        const Tensor x = batch.gather("x");
        CHECK(batch.output_buffer("y", x.datatype, x.shape) == nullptr);
        echo(batch);
    });
    check_success(two[1]);
}

TEST(optional_inputs_may_be_missing) {
    World world(config_text(8, {"x FP32 -1", "bias FP32 1 optional"}, {"y FP32 -1"}));
    const std::vector<float> data{1};
    const std::vector<float> bias{5};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1), floats(data, 1)};
    requests[1].inputs.insert(requests[1].inputs.begin(), input_of("bias", TRITONSERVER_TYPE_FP32, {1, 1}, bias));
    std::vector<std::size_t> sizes;
    run(world, requests, [&](Batch& batch) {
        sizes.push_back(batch.request_count());
        CHECK(!batch.has_input("other"));
        if (!batch.has_input("bias")) {
            echo(batch);
            CHECK_ERROR(TRITONSERVER_ERROR_INTERNAL, "the requests have no input 'bias'", batch.gather("bias"));
            return;
        }
        const Tensor tensor = batch.gather("bias");
        batch.scatter("y", tensor.datatype, tensor.shape, tensor.data);
    });
    CHECK(sizes == (std::vector<std::size_t>{2, 1}));
    CHECK(floats_of(requests[0].outputs.at(0)) == data);
    CHECK(floats_of(requests[1].outputs.at(0)) == bias);
    CHECK(floats_of(requests[2].outputs.at(0)) == data);
}

TEST(a_wrong_input_fails_only_its_request) {
    World world(config_text(4, {"x FP32 2", "s STRING 1 optional"}, {"y FP32 2"}));
    const std::vector<float> data{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const std::vector<std::byte> text = encoded({"a"});
    const auto with = [&](std::vector<std::int64_t> shape, std::size_t size) {
        TRITONBACKEND_Request request;
        request.inputs.push_back(
            {"x", TRITONSERVER_TYPE_FP32, std::move(shape), {{data.data(), size, TRITONSERVER_MEMORY_CPU}}});
        return request;
    };
    std::vector<TRITONBACKEND_Request> requests;
    std::vector<std::string> messages;
    const auto add = [&](TRITONBACKEND_Request request, const std::string& message) {
        requests.push_back(std::move(request));
        messages.push_back(message);
    };
    add(with({1, 2}, 8), "");
    add(with({1, 3}, 12), "input 'x' of model m: the shape is [1,3], expected [-1,2]");
    add(with({2}, 8), "input 'x' of model m: the shape is [2], expected [-1,2]");
    add(with({5, 2}, 40), "input 'x' of model m: the batch size is 5, the maximum is 4");
    add(with({-1, 2}, 8), "input 'x' of model m: shape [-1,2] has a negative dimension");
    add(with({1, 2}, 7), "input 'x' of model m: 7 bytes of data were sent, but shape [1,2] of type FP32 has 8");
    add(TRITONBACKEND_Request{}, "input 'x' of model m is missing");
    add(with({1, 2}, 8), "input 'x' of model m: the type is INT32, expected FP32");
    requests.back().inputs[0].datatype = TRITONSERVER_TYPE_INT32;
    add(with({1, 2}, 8), "input 'u' of model m: the configuration has no such input");
    requests.back().inputs[0].name = std::string("u");
    add(with({1, 2}, 8), "input 'x' of model m: the data is in memory that the CPU cannot read");
    requests.back().inputs[0].buffers[0].type = TRITONSERVER_MEMORY_GPU;
    add(with({2, 2}, 16), "input 's' of model m: the batch size is 1, another input has 2");
    requests.back().inputs.push_back(input_of("s", TRITONSERVER_TYPE_BYTES, {1, 1}, text));
    add(with({2, 2}, 16), "input 's' of model m: element 1 of 2 has no length: 0 bytes are left");
    requests.back().inputs.push_back(input_of("s", TRITONSERVER_TYPE_BYTES, {2, 1}, text));
    add(with({3, 2}, 24), "");
    std::size_t ran = 0;
    run(world, requests, [&](Batch& batch) {
        ran += batch.request_count();
        echo(batch);
    });
    CHECK_EQUAL(ran, 2U);
    for (std::size_t index = 0; index < requests.size(); ++index) {
        CHECK_EQUAL(requests[index].message, messages[index]);
        CHECK_EQUAL(requests[index].success, messages[index].empty());
        CHECK(requests[index].sent == 1 && requests[index].released == 1 && requests[index].reported == 1);
    }
    CHECK(floats_of(requests.back().outputs.at(0)) == (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(an_unavailable_buffer_fails_the_request) {
    World world(config_text(4, {"x FP32 2"}, {"elsewhere FP32 2"}));
    const std::vector<float> data{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1)};
    run(world, requests, [&](Batch& batch) {
        const Tensor x = batch.gather("x");
        const std::string expected = "output 'elsewhere' has to go to memory that the CPU cannot write";
        CHECK_ERROR(TRITONSERVER_ERROR_UNSUPPORTED, expected, batch.output_buffer("elsewhere", x.datatype, x.shape));
        batch.scatter("elsewhere", x.datatype, x.shape, x.data);
    });
    CHECK_EQUAL(requests[0].message, "output 'elsewhere' has to go to memory that the CPU cannot write");
}

TEST(outputs_that_contradict_the_configuration_are_errors) {
    World world(config_text(4, {"x FP32 2"}, {"y FP32 2"}));
    const std::vector<float> data{1, 2};
    const auto message = [&](const std::function<void(Batch&)>& body) {
        std::vector<TRITONBACKEND_Request> requests{floats(data, 1)};
        run(world, requests, body);
        CHECK(requests[0].error && !requests[0].success);
        CHECK(requests[0].code == TRITONSERVER_ERROR_INTERNAL);
        return requests[0].message;
    };
    using Dims = std::vector<std::int64_t>;
    CHECK_EQUAL(message([&](Batch& batch) { batch.scatter("y", TRITONSERVER_TYPE_FP64, Dims{1, 2}, data.data()); }),
                "output 'y' of model m: the model gives type FP64, the configuration has FP32");
    CHECK_EQUAL(message([&](Batch& batch) { batch.scatter("y", TRITONSERVER_TYPE_FP32, Dims{2, 1}, data.data()); }),
                "output 'y' of model m: the model gives shape [2,1], expected [1,2]");
    CHECK_EQUAL(message([&](Batch& batch) { batch.scatter("y", TRITONSERVER_TYPE_FP32, Dims{2}, data.data()); }),
                "output 'y' of model m: the model gives shape [2], expected [1,2]");
    CHECK_EQUAL(message([&](Batch& batch) { batch.scatter("w", TRITONSERVER_TYPE_FP32, Dims{1, 2}, data.data()); }),
                "the configuration of model m has no output 'w'");
    CHECK_EQUAL(message([&](Batch& batch) {
                    echo(batch);
                    echo(batch);
                }),
                "output 'y' was given twice");
    CHECK_EQUAL(message([](Batch&) {}), "model m gave no output 'y'");
    CHECK_EQUAL(message([](Batch& batch) { batch.fail(0, internal_error("mine")); }), "mine");
}

TEST(string_outputs_that_contradict_their_shape_are_errors) {
    World world(config_text(4, {"x FP32 2"}, {"y STRING -1"}));
    const std::vector<float> data{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1)};
    run(world, requests, [](Batch& batch) {
        const std::vector<std::string_view> elements{"a"};
        batch.scatter("y", std::vector<std::int64_t>{1, 2}, elements);
    });
    CHECK_EQUAL(requests[0].message, "output 'y' of model m has 1 elements, shape [1,2] has 2");
}

TEST(a_response_outside_cpu_memory_fails_alone) {
    World world(config_text(4, {"x FP32 2"}, {"y FP32 2", "elsewhere FP32 2"}));
    const std::vector<float> data{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
    requests[0].wanted = {"y"};
    requests[1].wanted = {"elsewhere"};
    int runs = 0;
    run(world, requests, [&](Batch& batch) {
        ++runs;
        echo(batch);
        const Tensor x = batch.gather("x");
        batch.scatter("elsewhere", x.datatype, x.shape, x.data);
    });
    CHECK_EQUAL(runs, 1);
    check_success(requests[0]);
    CHECK_EQUAL(requests[1].message, "output 'elsewhere' has to go to memory that the CPU cannot write");
}
