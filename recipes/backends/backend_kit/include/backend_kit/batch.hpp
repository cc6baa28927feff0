// The requests of one execution: inputs as one tensor each, outputs split into the responses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend_kit/bytes.hpp"
#include "backend_kit/config.hpp"
#include "backend_kit/datatype.hpp"
#include "backend_kit/error.hpp"

namespace backend_kit {

class Request;

// One input over all requests of a batch, contiguous in CPU memory, aligned to its element (to 64 bytes when copied).
// Valid as long as the batch. The bytes may be the client's own: do not write to them.
struct Tensor {
    DataType datatype = TRITONSERVER_TYPE_INVALID;
    std::vector<std::int64_t> shape;  // with the batch dimension, if the model has one: the sum over the requests
    const std::byte* data = nullptr;  // never null
    std::size_t size = 0;             // bytes

    // The elements of a BYTES tensor; the views point into `data`.
    std::vector<std::string_view> strings() const;
};

// Requests that run together: all have the same set of inputs and, apart from the batch dimension, the same shapes.
// Every input was checked against the configuration, so a batch can be gathered without further checks. Not
// thread-safe.
//
// A backend calls gather(), begin_compute(), runs, calls end_compute(), and scatter() for each output. An exception
// from run() is the error of the request; in a batch of several, each request is then run alone.
class Batch {
public:
    Batch(const ModelConfig& config, std::span<Request* const> requests);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    std::size_t request_count() const noexcept { return requests_.size(); }
    // Rows of all requests together; 1 for a model without a batch dimension.
    std::int64_t size() const noexcept { return size_; }
    // Rows of each request.
    std::int64_t size_of(std::size_t request) const noexcept;

    // Returns whether the requests have this input: false only for optional ones.
    bool has_input(std::string_view name) const noexcept;
    // The input over all requests, without a copy if it is one contiguous, aligned piece of CPU memory. Throws
    // Error (internal) for an input that the requests do not have.
    Tensor gather(std::string_view name);

    // Returns whether any request asked for this output, or keeps it as the state of its sequence. Other outputs need
    // not be computed or scattered.
    bool wants(std::string_view name) const noexcept;

    // Gives each request that wants the output its rows of `data`, which is contiguous in CPU memory and has the
    // shape and type of the whole batch. Throws Error (internal) when type or shape contradict the configuration or
    // the batch. A response that already has the output, or whose buffer is not in CPU memory, fails alone.
    void scatter(std::string_view name, DataType datatype, Shape shape, const void* data);
    // The same for a BYTES output with its elements in row-major order.
    void scatter(std::string_view name, Shape shape, std::span<const std::string_view> elements);

    // The memory of the output in the response of the only request, or of its next state, to compute into instead of
    // calling scatter(); null if there are several requests, none wants the output, or it goes to both. Throws Error as
    // scatter() does, and if the buffer is not available, which fails the request. Not for BYTES.
    void* output_buffer(std::string_view name, DataType datatype, Shape shape);

    // Marks one request failed; the others go on. Its rows stay in the tensors.
    void fail(std::size_t request, const Error& error) noexcept;
    // Returns whether nobody waits for this request: the client gave it up, or it fills an empty slot of a batch of
    // sequences. Long-running backends may check between steps.
    bool cancelled(std::size_t request) const;

    // Start and end of the computation, for statistics; by default those of run().
    void begin_compute() noexcept;
    void end_compute() noexcept;

    std::uint64_t compute_start() const noexcept { return compute_start_; }
    std::uint64_t compute_end() const noexcept { return compute_end_; }

private:
    struct Free {
        void operator()(std::byte* block) const noexcept;
    };
    using Block = std::unique_ptr<std::byte, Free>;

    static Block allocate(std::size_t size);
    std::size_t rows() const noexcept;  // size(), at least 1, for dividing
    static bool keeps(const Request& request, const TensorConfig* output) noexcept;
    template <typename Write>
    static void give(Request& request, const TensorConfig& output, Shape shape, Write&& write) noexcept;
    const TensorConfig* checked_output(std::string_view name, DataType datatype, Shape shape) const;

    const ModelConfig& config_;
    std::vector<Request*> requests_;
    std::vector<Block> blocks_;
    std::int64_t size_ = 0;
    std::uint64_t compute_start_ = 0;
    std::uint64_t compute_end_ = 0;
};

}  // namespace backend_kit
