// A fake server: the objects and functions of Triton's backend C API, which count live objects and fail on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend_kit/triton.h"

struct TRITONSERVER_Error {
    TRITONSERVER_Error_Code code;
    std::string message;
};

struct TRITONSERVER_Message {
    std::string text;
};

struct TRITONBACKEND_Backend {
    std::string name = "testing";
    TRITONSERVER_Message config{R"({"cmdline":{"default-max-batch-size":"4","level":"7"}})"};
    void* state = nullptr;
};

struct TRITONBACKEND_Model {
    TRITONBACKEND_Backend* backend = nullptr;
    std::string name = "m";
    std::uint64_t version = 3;
    std::string location = "/models/m";
    std::string config;
    bool auto_complete = false;
    std::string set_config;  // the configuration that the backend set
    void* state = nullptr;
};

struct TRITONBACKEND_ModelInstance {
    TRITONBACKEND_Model* model = nullptr;
    std::string name = "m_0";
    TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
    std::int32_t device_id = 0;
    void* state = nullptr;
    struct BatchStatistics {
        std::uint64_t size;
        std::uint64_t exec_start, compute_start, compute_end, exec_end;
    };
    std::vector<BatchStatistics> batches;
};

struct TRITONBACKEND_Input {
    struct Buffer {
        const void* data;
        std::size_t size;
        TRITONSERVER_MemoryType type;
    };
    std::string name;
    TRITONSERVER_DataType datatype;
    std::vector<std::int64_t> shape;
    std::vector<Buffer> buffers;
};

struct TRITONBACKEND_Output {
    TRITONBACKEND_Request* request = nullptr;
    std::string name;
    TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
    bool has_buffer = false;
};

struct TRITONBACKEND_Response {
    TRITONBACKEND_Request* request;
    std::vector<std::unique_ptr<TRITONBACKEND_Output>> outputs;
};

// The next state of a sequence, and what became of it at StateUpdate.
struct TRITONBACKEND_State {
    TRITONBACKEND_Request* request = nullptr;
    std::string name;
    TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
    int updated = 0;
    std::vector<std::int64_t> kept_shape;
    std::vector<std::byte> kept;
};

struct TRITONBACKEND_Request {
    std::vector<TRITONBACKEND_Input> inputs;
    std::vector<std::string> wanted;
    int cancelled_after = -1;  // how often to answer no before yes; -1: never cancelled

    // Its outcome.
    int made = 0;  // responses
    int sent = 0;
    int released = 0;
    int reported = 0;
    bool success = false;
    bool answered_after_release = false;
    bool error = false;
    TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_UNKNOWN;
    std::string message;
    std::vector<TRITONBACKEND_Output> outputs;  // of the response that was sent
    std::vector<std::string> buffers;           // outputs whose memory was requested
    std::deque<TRITONBACKEND_State> states;
    std::uint64_t exec_start = 0, compute_start = 0, compute_end = 0, exec_end = 0;
};

namespace fake {

struct Server {
    int errors = 0;  // alive
    int messages = 0;
    int responses = 0;
    std::uint32_t major = 1;
    std::uint32_t minor = 19;
    bool verbose = false;
    std::vector<std::string> log;
    long calls = 0;        // of functions that can fail
    long fail_at = -1;     // the number of the call that fails
    std::string failed{};  // the function that did
};

extern Server server;

// True while a function of the server runs, whose own allocations do not count.
extern thread_local bool inside;

}  // namespace fake
