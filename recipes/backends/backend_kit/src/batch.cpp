#include "backend_kit/batch.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "request.hpp"

namespace backend_kit {
namespace {

// Alignment of copied inputs: a cache line, and the widest vectors that libraries load at once.
constexpr std::size_t alignment = 64;

// The data of an input without any byte.
alignas(alignment) constexpr std::byte nothing[alignment]{};

bool aligned(const std::byte* data, DataType datatype) noexcept {
    const std::size_t size = datatype_size(datatype);
    return size < 2 || reinterpret_cast<std::uintptr_t>(data) % size == 0;
}

// The one piece of memory that all segments form, or null.
const std::byte* joined(std::span<Request* const> requests, std::size_t index) noexcept {
    const std::byte* start = nullptr;
    const std::byte* end = nullptr;
    for (const Request* request : requests) {
        for (const Segment& segment : request->segments(request->input(index))) {
            if (start == nullptr) {
                start = segment.data;
            } else if (segment.data != end) {
                return nullptr;
            }
            end = segment.data + segment.size;
        }
    }
    return start;
}

}  // namespace

std::vector<std::string_view> Tensor::strings() const { return decode_bytes({data, size}, element_count(shape)); }

void Batch::Free::operator()(std::byte* block) const noexcept { std::free(block); }

Batch::Block Batch::allocate(std::size_t size) {
    void* block = nullptr;
    if (posix_memalign(&block, alignment, size) != 0) {
        throw std::bad_alloc();
    }
    return Block(static_cast<std::byte*>(block));
}

Batch::Batch(const ModelConfig& config, std::span<Request* const> requests)
    : config_(config), requests_(requests.begin(), requests.end()) {
    for (const Request* request : requests_) {
        size_ += request->size();
    }
}

Batch::~Batch() = default;

std::int64_t Batch::size_of(std::size_t request) const noexcept { return requests_[request]->size(); }

bool Batch::has_input(std::string_view name) const noexcept {
    const TensorConfig* tensor = config_.input(name);
    return tensor != nullptr &&
           requests_[0]->input(static_cast<std::size_t>(tensor - config_.all_inputs.data())).present;
}

Tensor Batch::gather(std::string_view name) {
    if (!has_input(name)) {
        throw internal_error("the requests have no input '" + std::string(name) + "'");
    }
    const TensorConfig* config = config_.input(name);
    const auto index = static_cast<std::size_t>(config - config_.all_inputs.data());
    const InputPart& first = requests_[0]->input(index);
    Tensor tensor{config->datatype, {first.shape.begin(), first.shape.end()}, joined(requests_, index), 0};
    if (config_.batching()) {
        tensor.shape[0] = size_;
    }
    for (const Request* request : requests_) {
        tensor.size += request->input(index).size;
    }
    if (tensor.size == 0) {
        tensor.data = nothing;
    } else if (tensor.data == nullptr || !aligned(tensor.data, tensor.datatype)) {
        blocks_.push_back(allocate(tensor.size));
        std::byte* target = blocks_.back().get();
        tensor.data = target;
        for (const Request* request : requests_) {
            for (const Segment& segment : request->segments(request->input(index))) {
                std::memcpy(target, segment.data, segment.size);
                target += segment.size;
            }
        }
    }
    return tensor;
}

std::size_t Batch::rows() const noexcept { return std::max<std::size_t>(1, static_cast<std::size_t>(size_)); }

bool Batch::wants(std::string_view name) const noexcept {
    const TensorConfig* output = config_.sequence_batching ? config_.output(name) : nullptr;
    return std::any_of(requests_.begin(), requests_.end(), [&](const Request* request) {
        return request->wants(name) || keeps(*request, output);
    });
}

// Whether an output, which may be null, is a state that the request has to give.
bool Batch::keeps(const Request& request, const TensorConfig* output) noexcept {
    return output != nullptr && output->state && request.keeps_states();
}

// Lets `write` fill the output of a request wherever it goes: to the response, to the state, or to both. It is handed a
// function that gives the memory for a number of bytes.
template <typename Write>
void Batch::give(Request& request, const TensorConfig& output, Shape shape, Write&& write) noexcept {
    try {
        if (request.wants(output.name)) {
            write([&](std::size_t size) { return request.add_output(output, shape, size); });
        }
        if (keeps(request, &output)) {
            write([&](std::size_t size) { return request.add_state(output, shape, size); });
        }
    } catch (...) {
        request.fail(current_error());
    }
}

const TensorConfig* Batch::checked_output(std::string_view name, DataType datatype, Shape shape) const {
    const TensorConfig* output = config_.output(name);
    if (output == nullptr) {
        throw internal_error("the configuration of model " + config_.name + " has no output '" + std::string(name) +
                             "'");
    }
    const auto refuse = [&](const std::string& complaint) {
        throw internal_error(std::string(output->role()) + "output '" + output->name + "' of model " + config_.name +
                             ": " + complaint);
    };
    if (datatype != output->datatype) {
        refuse("the model gives type " + std::string(datatype_name(datatype)) + ", the configuration has " +
               std::string(datatype_name(output->datatype)));
    }
    const std::size_t batch = config_.batching() ? 1 : 0;
    const std::vector<std::int64_t>& dims = output->model_dims();
    if (shape.size() != batch + dims.size() || (batch == 1 && shape[0] != size_) ||
        !dims_fit(dims, shape.subspan(batch))) {
        const std::string expected = shape_text(with_batch(config_.batching() ? &size_ : nullptr, dims));
        refuse("the model gives shape " + shape_text(shape) + ", expected " + expected);
    }
    return output;
}

void Batch::scatter(std::string_view name, DataType datatype, Shape shape, const void* data) {
    if (!wants(name)) {
        return;
    }
    const TensorConfig* output = checked_output(name, datatype, shape);
    const std::size_t size = tensor_size(datatype, shape);
    const std::size_t row = config_.batching() ? size / rows() : size;
    std::vector<std::int64_t> part(shape.begin(), shape.end());
    const auto* source = static_cast<const std::byte*>(data);
    for (Request* request : requests_) {
        const std::size_t bytes = row * static_cast<std::size_t>(request->size());
        if (config_.batching()) {
            part[0] = request->size();
        }
        give(*request, *output, part, [&](auto&& memory) {
            std::byte* target = memory(bytes);
            if (bytes > 0) {
                std::memcpy(target, source, bytes);
            }
        });
        source += bytes;
    }
}

void Batch::scatter(std::string_view name, Shape shape, std::span<const std::string_view> elements) {
    if (!wants(name)) {
        return;
    }
    const TensorConfig* output = checked_output(name, TRITONSERVER_TYPE_BYTES, shape);
    const std::size_t count = element_count(shape);
    if (elements.size() != count) {
        throw internal_error("output '" + output->name + "' of model " + config_.name + " has " +
                             std::to_string(elements.size()) + " elements, shape " + shape_text(shape) + " has " +
                             std::to_string(count));
    }
    const std::size_t row = config_.batching() ? count / rows() : count;
    std::vector<std::int64_t> part(shape.begin(), shape.end());
    std::size_t offset = 0;
    for (Request* request : requests_) {
        const auto own = elements.subspan(offset, row * static_cast<std::size_t>(request->size()));
        offset += own.size();
        if (config_.batching()) {
            part[0] = request->size();
        }
        give(*request, *output, part, [&](auto&& memory) { encode_bytes(own, memory(encoded_size(own))); });
    }
}

void* Batch::output_buffer(std::string_view name, DataType datatype, Shape shape) {
    if (requests_.size() != 1) {
        return nullptr;
    }
    const bool wanted = requests_[0]->wants(name);
    const bool kept = config_.sequence_batching && keeps(*requests_[0], config_.output(name));
    if (wanted == kept) {
        return nullptr;
    }
    const TensorConfig* output = checked_output(name, datatype, shape);
    const std::size_t size = tensor_size(datatype, shape);
    try {
        return kept ? requests_[0]->add_state(*output, shape, size) : requests_[0]->add_output(*output, shape, size);
    } catch (...) {
        requests_[0]->fail(current_error());
        throw;
    }
}

void Batch::fail(std::size_t request, const Error& error) noexcept { requests_[request]->fail(error); }

bool Batch::cancelled(std::size_t request) const {
    return requests_[request]->padding() || requests_[request]->cancelled();
}

void Batch::begin_compute() noexcept { compute_start_ = now_ns(); }

void Batch::end_compute() noexcept { compute_end_ = now_ns(); }

}  // namespace backend_kit
