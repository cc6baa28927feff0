// Every path again and again, each time with a different failing server call or allocation: each request is answered
// and released exactly once, or still belongs to the server, and nothing is left behind (which World checks).
#include <cstdlib>
#include <new>

#include "testing.hpp"
#include "world.hpp"

namespace {

// Allocations of the backend until one fails; none fails if negative.
long allocations_left = -1;
long allocations_failed = 0;

}  // namespace

// Not inlined: the compiler would report malloc and delete in one function as a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (!fake::inside && allocations_left >= 0 && allocations_left-- == 0) {
        ++allocations_failed;
        throw std::bad_alloc();
    }
    void* const block = std::malloc(size == 0 ? 1 : size);
    if (block == nullptr) {
        throw std::bad_alloc();
    }
    return block;
}

[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }

[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }

using namespace testing;

namespace {

const std::vector<float> one{1, 2};
const std::vector<float> bad{-1, 2};
const std::vector<float> wide{1, 2, 3};
const std::vector<float> start{1};
const std::vector<std::byte> empty_text(4);
const std::vector<std::byte> text(5);  // an element with no bytes, and one extra byte

std::vector<TRITONBACKEND_Request> good_requests() { return {floats(one, 1)}; }

// Two groups, a poisoned request, a cancelled one, wrong ones, one that wants only some outputs.
std::vector<TRITONBACKEND_Request> mixed_requests() {
    std::vector<TRITONBACKEND_Request> requests{floats(one, 1),  floats(wide, 1), floats(bad, 1), floats(one, 2),
                                                floats(wide, 1), floats(one, 1),  floats(one, 1), floats(one, 1)};
    requests[3].cancelled_after = 0;
    requests[4].wanted = {"y"};
    requests[5].inputs[0].name = "wrong";
    requests[6].inputs.push_back(input_of("s", TRITONSERVER_TYPE_BYTES, {1, 1}, text));
    requests[7].inputs[0].buffers = {{one.data(), 4, TRITONSERVER_MEMORY_CPU},
                                     {one.data(), 4, TRITONSERVER_MEMORY_CPU}};
    return requests;
}

void work(Batch& batch) {
    const Tensor x = batch.gather("x");
    batch.begin_compute();
    batch.scatter("y", x.datatype, x.shape, x.data);
    for (std::size_t index = 0; index < x.size / 4; ++index) {
        float value = 0;
        std::memcpy(&value, x.data + 4 * index, 4);
        if (value < 0) {
            throw std::runtime_error("poison");
        }
    }
    batch.end_compute();
    const std::vector<std::string_view> names(static_cast<std::size_t>(batch.size()), "name");
    batch.scatter("t", std::vector<std::int64_t>{batch.size(), 1}, names);
}

std::string config() { return config_text(8, {"x FP32 -1", "s STRING 1 optional"}, {"y FP32 -1", "t STRING 1"}); }

// Sequences: a good one, one that fails, an empty slot, one whose state has another shape.
std::vector<TRITONBACKEND_Request> sequence_requests() {
    std::vector<TRITONBACKEND_Request> requests{floats(one, 1), floats(bad, 1), floats(one, 1), floats(one, 1)};
    for (TRITONBACKEND_Request& request : requests) {
        request.inputs.push_back(input_of("start", TRITONSERVER_TYPE_FP32, {1, 1}, start));
        request.inputs.push_back(input_of("h", TRITONSERVER_TYPE_FP32, {1, 2}, one));
        request.inputs.push_back(input_of("s", TRITONSERVER_TYPE_BYTES, {1, 1}, empty_text));
        request.wanted = {"y"};
    }
    requests[2].wanted.clear();
    requests[3].inputs[2] = input_of("h", TRITONSERVER_TYPE_FP32, {1, 3}, wide);
    requests[3].wanted = {"y", "h2"};
    return requests;
}

void work_on_sequences(Batch& batch) {
    const Tensor h = batch.gather("h");
    if (void* target = batch.output_buffer("h2", h.datatype, h.shape)) {
        std::memcpy(target, h.data, h.size);
    } else {
        batch.scatter("h2", h.datatype, h.shape, h.data);
    }
    const std::vector<std::string_view> texts(static_cast<std::size_t>(batch.size()), "text");
    batch.scatter("s2", std::vector<std::int64_t>{batch.size(), 1}, texts);
    static_cast<void>(batch.gather("start"));
    work(batch);
}

std::string sequence_config() {
    return config_text(
        8, {"x FP32 -1"}, {"y FP32 -1", "h2 FP32 -1"},
        R"(,"sequence_batching":{"control_input":[{"name":"start","control":[{"kind":"CONTROL_SEQUENCE_START",)"
        R"("fp32_false_true":[0,1]}]}],"state":[)"
        R"({"input_name":"h","output_name":"h2","data_type":"TYPE_FP32","dims":[-1],)"
        R"("initial_state":[{"dims":[2],"zero_data":true}]},)"
        R"({"input_name":"s","output_name":"s2","data_type":"TYPE_STRING","dims":[1]}]})");
}

struct Scenario {
    std::string config;
    void (*work)(Batch&);
    std::vector<TRITONBACKEND_Request> (*make)();
};

const Scenario one_request{config(), work, good_requests};
const Scenario many_requests{config(), work, mixed_requests};
const Scenario sequences{sequence_config(), work_on_sequences, sequence_requests};

// States go with the answer: all of them once, or none.
void check_states(const TRITONBACKEND_Request& request) {
    if (request.states.empty()) {
        return;
    }
    const bool sent = fake::server.failed != "TRITONBACKEND_ResponseSend";
    const bool reported = fake::server.failed != "TRITONBACKEND_ModelInstanceReportStatistics";
    for (const TRITONBACKEND_State& state : request.states) {
        CHECK(state.updated <= 1);
        if (sent && reported && request.success) {
            CHECK_EQUAL(state.updated, 1);
        } else if (sent && reported && fake::server.failed != "TRITONBACKEND_StateUpdate") {
            CHECK_EQUAL(state.updated, 0);
        }
    }
}

void check_requests(const std::vector<TRITONBACKEND_Request>& requests, bool accepted) {
    for (const TRITONBACKEND_Request& request : requests) {
        check_states(request);
        CHECK(request.made <= 1);
        CHECK_EQUAL(request.sent, accepted ? 1 : 0);
        CHECK_EQUAL(request.released, accepted ? 1 : 0);
        CHECK_EQUAL(request.reported, accepted ? 1 : 0);
        CHECK(!request.answered_after_release);
    }
}

// Makes each call of one execution fail in turn; returns how many there are.
long fail_each_call(const Scenario& scenario) {
    for (long index = 0;; ++index) {
        World world(scenario.config);
        behaviour.on_run = scenario.work;
        std::vector<TRITONBACKEND_Request> requests = scenario.make();
        world.load();
        const long before = fake::server.calls;
        fake::server.fail_at = before + index;
        TRITONSERVER_Error* const error = world.execute(requests);
        const bool accepted = error == nullptr;
        if (!accepted) {
            CHECK_EQUAL(error->message, fake::server.failed + " failed");
            TRITONSERVER_ErrorDelete(error);
        }
        check_requests(requests, accepted);
        if (fake::server.failed.empty()) {
            return index;
        }
    }
}

// The same for each allocation.
long fail_each_allocation(const Scenario& scenario) {
    for (long index = 0;; ++index) {
        World world(scenario.config);
        behaviour.on_run = scenario.work;
        std::vector<TRITONBACKEND_Request> requests = scenario.make();
        std::vector<TRITONBACKEND_Request*> pointers;
        for (TRITONBACKEND_Request& request : requests) {
            pointers.push_back(&request);
        }
        world.load();
        const auto count = static_cast<std::uint32_t>(pointers.size());
        allocations_failed = 0;
        allocations_left = index;
        TRITONSERVER_Error* const error = TRITONBACKEND_ModelInstanceExecute(&world.instance, pointers.data(), count);
        allocations_left = -1;
        const bool accepted = error == nullptr;
        if (!accepted) {
            CHECK_EQUAL(error->message, "out of memory");
            TRITONSERVER_ErrorDelete(error);
        }
        check_requests(requests, accepted);
        if (allocations_failed == 0) {
            return index;
        }
    }
}

}  // namespace

TEST(any_call_may_fail_while_one_request_runs) { CHECK(fail_each_call(one_request) > 15); }

TEST(any_call_may_fail_while_many_requests_run) { CHECK(fail_each_call(many_requests) > 100); }

TEST(any_allocation_may_fail_while_one_request_runs) { CHECK(fail_each_allocation(one_request) > 10); }

TEST(any_allocation_may_fail_while_many_requests_run) { CHECK(fail_each_allocation(many_requests) > 50); }

TEST(any_call_may_fail_while_sequences_run) { CHECK(fail_each_call(sequences) > 100); }

TEST(any_allocation_may_fail_while_sequences_run) { CHECK(fail_each_allocation(sequences) > 50); }

TEST(any_call_may_fail_while_a_model_is_loaded_and_unloaded) {
    long calls = 0;
    for (long index = 0;; ++index) {
        World world(sequence_config());
        world.model.auto_complete = true;
        behaviour.on_complete = [](ModelConfig& config) {
            config.max_batch_size = 4;
            return true;
        };
        fake::server.fail_at = index;
        try {
            world.load();
        } catch (const Error& error) {
            CHECK_EQUAL(error.what(), fake::server.failed + " failed");
        }
        world.close();
        if (fake::server.failed.empty()) {
            calls = index;
            break;
        }
    }
    CHECK(calls > 25);
}

TEST(any_allocation_may_fail_while_a_model_is_loaded) {
    long allocations = 0;
    for (long index = 0;; ++index) {
        World world(sequence_config());
        world.model.auto_complete = true;
        behaviour.on_complete = [](ModelConfig&) { return true; };
        allocations_failed = 0;
        allocations_left = index;
        try {
            world.load();
        } catch (const Error& error) {
            CHECK_EQUAL(static_cast<int>(error.code()), static_cast<int>(TRITONSERVER_ERROR_UNAVAILABLE));
        } catch (const std::bad_alloc&) {  // of the test itself, converting the returned error
        }
        allocations_left = -1;
        world.close();
        if (allocations_failed == 0) {
            allocations = index;
            break;
        }
    }
    CHECK(allocations > 50);
}
