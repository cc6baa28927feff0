// One request from Triton, with its response: each is given back exactly once.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backend_kit/bytes.hpp"
#include "backend_kit/config.hpp"
#include "backend_kit/error.hpp"

namespace backend_kit {

// Returns whether a shape matches the dimensions of a configuration, where -1 is any size.
bool dims_fit(std::span<const std::int64_t> dims, Shape shape) noexcept;

// The dimensions, preceded by the batch dimension if there is one; for messages.
std::vector<std::int64_t> with_batch(const std::int64_t* batch, const std::vector<std::int64_t>& dims);

// steady_clock in nanoseconds, the clock of Triton's statistics.
std::uint64_t now_ns() noexcept;

// The four stamps of TRITONBACKEND_ModelInstanceReportStatistics, in nanoseconds.
struct Times {
    std::uint64_t exec_start = 0;
    std::uint64_t compute_start = 0;
    std::uint64_t compute_end = 0;
    std::uint64_t exec_end = 0;
};

// A request's data for one configured input. The shape and the memory belong to the request.
struct InputPart {
    bool present = false;
    Shape shape;
    std::size_t first = 0;  // its segments in Request::segments
    std::size_t count = 0;
    std::size_t size = 0;  // bytes
};

class Request {
public:
    // Creates the response. Throws Error if Triton gives none; Triton then still owns the request.
    explicit Request(TRITONBACKEND_Request* request);
    // Deletes a response that was never sent, for example because the requests of an execution were not accepted.
    ~Request();
    Request(Request&& other) noexcept : request_(other.request_), response_(std::exchange(other.response_, nullptr)) {}
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    // Reads and checks inputs, states and requested outputs. Throws Error, mostly invalid argument.
    void read(const ModelConfig& config);

    bool cancelled() const;
    // Throws Error (cancelled) if the client gave the request up.
    void check_wanted() const;
    // Rows; 1 without a batch dimension.
    std::int64_t size() const noexcept { return size_; }
    const InputPart& input(std::size_t index) const noexcept { return inputs_[index]; }
    std::span<const Segment> segments(const InputPart& part) const noexcept {
        return std::span(segments_).subspan(part.first, part.count);
    }

    // Returns whether both have the same inputs with the same shapes apart from the batch dimension.
    bool runs_with(const Request& other) const noexcept;

    // Whether this only fills an empty slot of a batch of sequences: Triton makes such requests, and nobody waits for
    // what they give.
    bool padding() const noexcept { return padding_; }

    bool wants(std::string_view output) const noexcept;
    // Returns whether it must provide all states of its sequence.
    bool keeps_states() const noexcept { return !failed() && !padding_; }
    // Adds an output to the response, and returns its memory; after restart() the memory that it already has. Throws
    // Error, also if the buffer is not in CPU memory: then the request has to fail.
    std::byte* add_output(const TensorConfig& output, Shape shape, std::size_t size);

    // The memory of the next state of the sequence, which holds once the request is answered without an error. Throws
    // Error as add_output does.
    std::byte* add_state(const TensorConfig& output, Shape shape, std::size_t size);

    void fail(const Error& error) noexcept { error_ = error; }
    bool failed() const noexcept { return error_.has_value(); }

    // Allows outputs to be added again, to run the request again. Triton provides their memory only once, whatever
    // the response (its gRPC front end would count another output, its HTTP front end forgets about shared memory), so
    // each output that was added has to be added again, in the same size. A state may have another size.
    void restart() noexcept;

    // Hands the states over and sends the response, or sends the error. A requested output or a state that was not
    // added since the last start is an error too.
    void send(const ModelConfig& config) noexcept;
    // Reports statistics and gives the request back. Call it after send().
    void release(TRITONBACKEND_ModelInstance* instance, const Times& times) noexcept;

private:
    struct Output {
        std::string_view name;
        std::vector<std::int64_t> shape;
        std::size_t size;
        std::byte* data;  // may be null where there are no bytes
        bool given;       // since the last start
    };

    struct State {
        std::string_view name;
        TRITONBACKEND_State* handle;
        bool given;  // since the last start
    };

    void read_input(const ModelConfig& config, std::uint32_t index);
    void read_segments(TRITONBACKEND_Input* input, std::uint32_t count, InputPart& part);
    void read_outputs(const ModelConfig& config);
    void check_complete(const ModelConfig& config) const;
    void check_states(const ModelConfig& config) const;
    void update_states();

    TRITONBACKEND_Request* request_;
    TRITONBACKEND_Response* response_ = nullptr;
    std::vector<InputPart> inputs_;  // in the order of the configuration
    std::vector<Segment> segments_;
    std::vector<std::string_view> wanted_;  // empty: all
    std::vector<Output> added_;
    std::vector<State> states_;
    bool padding_ = false;
    std::int64_t size_ = -1;
    std::optional<Error> error_;
};

}  // namespace backend_kit
