#include "execute.hpp"

#include <algorithm>

#include "request.hpp"

namespace backend_kit {
namespace {

// One call of ModelInstanceExecute once all its requests are accepted. Nothing here may throw, because each request has
// to be answered and released. So all memory for the bookkeeping is allocated before the first is accepted.
class Execution {
public:
    Execution(const ModelConfig& config, Instance& instance, TRITONBACKEND_ModelInstance* handle,
              std::span<TRITONBACKEND_Request* const> requests)
        : config_(config), instance_(instance), handle_(handle) {
        requests_.reserve(requests.size());
        waiting_.reserve(requests.size());
        group_.reserve(requests.size());
        for (TRITONBACKEND_Request* request : requests) {
            requests_.emplace_back(request);
        }
    }

    void run() noexcept {
        start_ = now_ns();
        for (Request& request : requests_) {
            if (attempt(request, [&] { request.read(config_); })) {
                waiting_.push_back(&request);
            }
        }
        while (!waiting_.empty()) {
            take_group();
            if (std::ranges::all_of(group_, &Request::padding)) {
                finish_group();
            } else {
                run_group();
            }
            start_ = now_ns();
        }
    }

private:
    // Does one step for a request; if it throws, answers the request with the error and releases it.
    template <typename Step>
    bool attempt(Request& request, Step&& step) noexcept {
        try {
            step();
            return true;
        } catch (...) {
            finish(request, current_error());
            return false;
        }
    }

    // Moves the first waiting request, and all that can run with it, from waiting_ to group_.
    void take_group() noexcept {
        group_.clear();
        std::int64_t rows = 0;
        std::size_t left = 0;
        for (Request* request : waiting_) {
            if (!attempt(*request, [&] { request->check_wanted(); })) {
                continue;
            }
            if (group_.empty() || (config_.batching() && rows + request->size() <= config_.max_batch_size &&
                                   request->runs_with(*group_[0]))) {
                group_.push_back(request);
                rows += request->size();
            } else {
                waiting_[left++] = request;
            }
        }
        waiting_.resize(left);
    }

    void run_group() noexcept {
        const std::optional<Error> error = run_batch(group_);
        if (!error) {
            return;
        }
        for (Request* request : group_) {
            if (request->failed() || request->padding()) {
                finish(*request);
            } else if (group_.size() == 1) {
                finish(*request, *error);
            } else {
                run_alone(*request);
            }
        }
    }

    // Gives back requests that only fill slots: there is nothing to run for them.
    void finish_group() noexcept {
        for (Request* request : group_) {
            finish(*request);
        }
    }

    void run_alone(Request& request) noexcept {
        start_ = now_ns();
        request.restart();
        if (attempt(request, [&] { request.check_wanted(); })) {
            Request* const alone = &request;
            if (const std::optional<Error> error = run_batch({&alone, 1})) {
                finish(request, *error);
            }
        }
    }

    // Runs requests as one batch and finishes them; or returns the exception and leaves them as they are.
    std::optional<Error> run_batch(std::span<Request* const> requests) noexcept {
        try {
            Batch batch(config_, requests);
            Times times{start_, now_ns(), 0, 0};
            instance_.run(batch);
            times.exec_end = now_ns();
            times.compute_start = batch.compute_start() != 0 ? batch.compute_start() : times.compute_start;
            times.compute_end = batch.compute_end() != 0 ? batch.compute_end() : times.exec_end;
            finish_batch(requests, batch.size(), times);
            return std::nullopt;
        } catch (...) {
            return current_error();
        }
    }

    void finish_batch(std::span<Request* const> requests, std::int64_t rows, const Times& times) noexcept {
        bool any = false;
        for (Request* request : requests) {
            request->send(config_);
            any = any || !request->failed();
        }
        for (Request* request : requests) {
            request->release(handle_, times);
        }
        if (any) {
            log_if_error(TRITONBACKEND_ModelInstanceReportBatchStatistics(handle_, static_cast<std::uint64_t>(rows),
                                                                          times.exec_start, times.compute_start,
                                                                          times.compute_end, times.exec_end),
                         "report statistics of a batch");
        }
    }

    void finish(Request& request, const Error& error) noexcept {
        request.fail(error);
        finish(request);
    }

    void finish(Request& request) noexcept {
        request.send(config_);
        request.release(handle_, {});
    }

    const ModelConfig& config_;
    Instance& instance_;
    TRITONBACKEND_ModelInstance* handle_;
    std::vector<Request> requests_;
    std::vector<Request*> waiting_;
    std::vector<Request*> group_;
    std::uint64_t start_ = 0;
};

}  // namespace

void execute(const ModelConfig& config, Instance& instance, TRITONBACKEND_ModelInstance* handle,
             std::span<TRITONBACKEND_Request* const> requests) {
    Execution execution(config, instance, handle, requests);
    execution.run();
}

}  // namespace backend_kit
