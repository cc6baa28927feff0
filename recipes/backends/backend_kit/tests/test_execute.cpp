// Groups, reruns, cancellation and statistics of requests.
#include "testing.hpp"
#include "world.hpp"

using namespace testing;

namespace {

// A run with a request whose first number is below 0 throws.
void poisoned(Batch& batch) {
    const Tensor x = batch.gather("x");
    echo(batch);  // so that the responses already have outputs when it throws
    for (std::size_t index = 0; index < x.size / 4; ++index) {
        float value = 0;
        std::memcpy(&value, x.data + 4 * index, 4);
        if (value < 0) {
            throw std::runtime_error("poison");
        }
    }
}

}  // namespace

TEST(requests_of_equal_shapes_run_together) {
    World world;
    const std::vector<float> two{1, 2};
    const std::vector<float> three{1, 2, 3};
    std::vector<TRITONBACKEND_Request> requests{floats(two, 1), floats(three, 1), floats(two, 1), floats(three, 1),
                                                floats(two, 2)};
    std::vector<std::string> shapes;
    behaviour.on_run = [&](Batch& batch) {
        shapes.push_back(shape_text(batch.gather("x").shape));
        echo(batch);
    };
    world.load();
    check_call(world.execute(requests));
    CHECK(shapes == (std::vector<std::string>{"[2,2]", "[2,3]", "[2,1]"}));
    CHECK(floats_of(requests[0].outputs.at(0)) == two);
    CHECK(floats_of(requests[3].outputs.at(0)) == three);
    CHECK(floats_of(requests[4].outputs.at(0)) == two);
}

TEST(no_batch_exceeds_the_maximum) {
    World world(config_text(4, {"x FP32 1"}, {"y FP32 1"}));
    const std::vector<float> data{1, 2, 3, 4};
    std::vector<TRITONBACKEND_Request> requests;
    for (const std::int64_t rows : {3, 2, 1, 2, 4}) {
        requests.push_back(floats({}, 0));
        requests.back().inputs[0] = {"x",
                                     TRITONSERVER_TYPE_FP32,
                                     {rows, 1},
                                     {{data.data(), static_cast<std::size_t>(rows) * 4, TRITONSERVER_MEMORY_CPU}}};
    }
    std::vector<std::int64_t> sizes;
    behaviour.on_run = [&](Batch& batch) {
        sizes.push_back(batch.size());
        echo(batch);
    };
    world.load();
    check_call(world.execute(requests));
    CHECK(sizes == (std::vector<std::int64_t>{4, 4, 4}));
    for (const TRITONBACKEND_Request& request : requests) {
        CHECK(request.success);
    }
}

TEST(a_bad_request_does_not_harm_its_batch) {
    World world;
    const std::vector<float> good{1};
    const std::vector<float> bad{-1};
    std::vector<TRITONBACKEND_Request> requests{floats(good, 1), floats(bad, 1), floats(good, 1)};
    std::vector<std::size_t> sizes;
    behaviour.on_run = [&](Batch& batch) {
        sizes.push_back(batch.request_count());
        poisoned(batch);
    };
    world.load();
    check_call(world.execute(requests));
    CHECK(sizes == (std::vector<std::size_t>{3, 1, 1, 1}));
    CHECK(requests[0].success && !requests[1].success && requests[2].success);
    CHECK_EQUAL(requests[1].message, "poison");
    CHECK(floats_of(requests[2].outputs.at(0)) == good);
    CHECK_EQUAL(world.instance.batches.size(), 2U);
    for (const TRITONBACKEND_Request& request : requests) {
        CHECK(request.sent == 1 && request.released == 1 && request.reported == 1 && !request.answered_after_release);
    }
}

TEST(a_request_that_the_backend_failed_is_not_run_again) {
    World world;
    const std::vector<float> good{1};
    const std::vector<float> bad{-1};
    std::vector<TRITONBACKEND_Request> requests{floats(good, 1), floats(bad, 1), floats(good, 1)};
    std::vector<std::size_t> sizes;
    behaviour.on_run = [&](Batch& batch) {
        sizes.push_back(batch.request_count());
        if (batch.request_count() == 3) {
            batch.fail(0, unavailable("first"));
        }
        poisoned(batch);
    };
    world.load();
    check_call(world.execute(requests));
    CHECK(sizes == (std::vector<std::size_t>{3, 1, 1}));
    CHECK_EQUAL(requests[0].message, "first");
    CHECK(requests[0].code == TRITONSERVER_ERROR_UNAVAILABLE);
    CHECK_EQUAL(requests[1].message, "poison");
    CHECK(requests[2].success);
}

TEST(rerun_outputs_go_to_the_same_memory) {
    World world;
    const std::vector<float> data{1, 2};
    const std::vector<float> wrong{7, 7, 7, 7};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
    behaviour.on_run = [&](Batch& batch) {
        const Tensor x = batch.gather("x");
        if (batch.request_count() == 2) {
            batch.scatter("y", x.datatype, x.shape, wrong.data());
            throw std::runtime_error("once more");
        }
        std::memcpy(batch.output_buffer("y", x.datatype, x.shape), x.data, x.size);
    };
    world.load();
    check_call(world.execute(requests));
    for (const TRITONBACKEND_Request& request : requests) {
        CHECK_EQUAL(request.message, "");
        CHECK_EQUAL(request.made, 1);
        CHECK_EQUAL(request.outputs.size(), 1U);
        CHECK(floats_of(request.outputs.at(0)) == data);
    }
}

TEST(rerun_outputs_must_exist_and_keep_their_size) {
    World world(config_text(8, {"x FP32 -1"}, {"y FP32 -1", "s STRING 1"}));
    const std::vector<float> data{1, 2};
    const auto message = [&](const std::function<void(Batch&)>& second) {
        std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
        behaviour.on_run = [&](Batch& batch) {
            if (batch.request_count() == 2) {
                echo(batch);
                batch.scatter("s", std::vector<std::int64_t>{2, 1}, std::vector<std::string_view>{"a", "a"});
                throw std::runtime_error("once more");
            }
            second(batch);
        };
        world.load();
        check_call(world.execute(requests));
        CHECK(!requests[0].success && requests[0].sent == 1 && requests[0].made == 1);
        return requests[0].message;
    };
    const std::vector<std::int64_t> one{1, 1};
    CHECK_EQUAL(message([&](Batch& batch) { batch.scatter("y", TRITONSERVER_TYPE_FP32, one, data.data()); }),
                "output 'y' was computed again and has shape [1,1] and 4 bytes, before it had shape [1,2] and 8 bytes");
    CHECK_EQUAL(message([&](Batch& batch) {
                    echo(batch);
                    batch.scatter("s", one, std::vector<std::string_view>{"ab"});
                }),
                "output 's' was computed again and has shape [1,1] and 6 bytes, before it had shape [1,1] and 5 bytes");
    CHECK_EQUAL(message([&](Batch& batch) { echo(batch); }), "model m gave no output 's'");
}

TEST(cancelled_requests_are_not_run) {
    World world;
    const std::vector<float> data{1};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
    requests[0].cancelled_after = 0;
    behaviour.on_run = [](Batch& batch) {
        CHECK_EQUAL(batch.request_count(), 1U);
        CHECK(!batch.cancelled(0));
        echo(batch);
    };
    world.load();
    check_call(world.execute(requests));
    CHECK(requests[0].code == TRITONSERVER_ERROR_CANCELLED);
    CHECK_EQUAL(requests[0].message, "the request was cancelled");
    CHECK(requests[1].success);
}

TEST(all_requests_may_be_cancelled) {
    World world;
    const std::vector<float> data{1};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
    requests[0].cancelled_after = requests[1].cancelled_after = 0;
    behaviour.on_run = [](Batch&) { throw internal_error("must not run"); };
    world.load();
    check_call(world.execute(requests));
    CHECK(requests[1].code == TRITONSERVER_ERROR_CANCELLED);
    CHECK(world.instance.batches.empty());
}

TEST(a_request_cancelled_while_it_waits_is_not_run) {
    World world;
    const std::vector<float> good{1};
    const std::vector<float> bad{-1};
    const std::vector<float> other{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(bad, 1), floats(good, 1), floats(other, 1)};
    requests[1].cancelled_after = 1;  // between the batch that fails and the run alone
    requests[2].cancelled_after = 1;  // between the first group and its own
    std::vector<std::size_t> sizes;
    behaviour.on_run = [&](Batch& batch) {
        sizes.push_back(batch.request_count());
        poisoned(batch);
    };
    world.load();
    check_call(world.execute(requests));
    CHECK(sizes == (std::vector<std::size_t>{2, 1}));
    CHECK(requests[1].code == TRITONSERVER_ERROR_CANCELLED);
    CHECK(requests[2].code == TRITONSERVER_ERROR_CANCELLED);
}

TEST(a_long_run_can_check_for_cancellation) {
    World world;
    const std::vector<float> data{1};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1)};
    requests[0].cancelled_after = 2;
    behaviour.on_run = [](Batch& batch) {
        CHECK(!batch.cancelled(0));
        CHECK(batch.cancelled(0));
        batch.fail(0, Error(TRITONSERVER_ERROR_CANCELLED, "stopped"));
    };
    world.load();
    check_call(world.execute(requests));
    CHECK_EQUAL(requests[0].message, "stopped");
}

TEST(statistics_have_four_stamps_in_order) {
    World world;
    const std::vector<float> data{1, 2};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 2), floats(data, 2), floats(data, 1)};
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    behaviour.on_run = [&](Batch& batch) {
        echo(batch);
        start = batch.compute_start();
        end = batch.compute_end();
    };
    world.load();
    check_call(world.execute(requests));
    CHECK_EQUAL(world.instance.batches.size(), 2U);
    CHECK_EQUAL(world.instance.batches[0].size, 4U);
    CHECK_EQUAL(world.instance.batches[1].size, 1U);
    CHECK_EQUAL(requests[2].compute_start, start);
    CHECK_EQUAL(requests[2].compute_end, end);
    std::uint64_t before = 1;
    for (const std::size_t index : {std::size_t{0}, std::size_t{2}}) {
        const TRITONBACKEND_Request& request = requests[index];
        CHECK(before <= request.exec_start && request.exec_start <= request.compute_start);
        CHECK(request.compute_start <= request.compute_end && request.compute_end <= request.exec_end);
        before = request.exec_end;
    }
    CHECK_EQUAL(world.instance.batches[0].exec_end, requests[0].exec_end);
}

TEST(missing_stamps_are_those_of_the_run) {
    World world;
    const std::vector<float> data{1};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1)};
    behaviour.on_run = [](Batch& batch) {
        const Tensor x = batch.gather("x");
        batch.scatter("y", x.datatype, x.shape, x.data);
    };
    world.load();
    check_call(world.execute(requests));
    CHECK(requests[0].exec_start > 0 && requests[0].exec_start <= requests[0].compute_start);
    CHECK(requests[0].compute_start <= requests[0].compute_end);
    CHECK_EQUAL(requests[0].compute_end, requests[0].exec_end);
}

TEST(a_failed_batch_is_not_in_the_statistics) {
    World world;
    const std::vector<float> data{1};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1)};
    behaviour.on_run = [](Batch& batch) { batch.fail(0, internal_error("no")); };
    world.load();
    check_call(world.execute(requests));
    CHECK(world.instance.batches.empty());
    CHECK_EQUAL(requests[0].reported, 1);
}

TEST(triton_keeps_all_requests_if_one_gets_no_response) {
    World world;
    const std::vector<float> data{1};
    std::vector<TRITONBACKEND_Request> requests{floats(data, 1), floats(data, 1)};
    world.load();
    fake::server.fail_at = fake::server.calls + 2;  // ModelInstanceState, ResponseNew, this one
    CHECK_ERROR(TRITONSERVER_ERROR_INTERNAL, "TRITONBACKEND_ResponseNew failed", check_call(world.execute(requests)));
    CHECK_EQUAL(fake::server.failed, "TRITONBACKEND_ResponseNew");
    CHECK_EQUAL(fake::server.responses, 0);
    for (const TRITONBACKEND_Request& request : requests) {
        CHECK(request.sent == 0 && request.released == 0 && request.reported == 0);
    }
}
