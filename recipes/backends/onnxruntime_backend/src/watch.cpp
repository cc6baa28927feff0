#include "watch.hpp"

#include <algorithm>
#include <chrono>

#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"

namespace onnx_backend {
namespace {

constexpr std::chrono::milliseconds interval(20);
// How many checks in a row find no run before the thread goes to sleep.
constexpr int patience = 50;

}  // namespace

CancelWatch::~CancelWatch() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
}

CancelWatch::Run::Run(CancelWatch& watch, const backend_kit::Batch& batch, OrtRunOptions* options)
    : watch_(watch), batch_(batch), options_(options) {
    bool wake = false;
    {
        const std::lock_guard lock(watch.mutex_);
        if (!watch.thread_.joinable()) watch.thread_ = std::thread([&watch] { watch.loop(); });
        watch.runs_.push_back(this);
        wake = watch.asleep_;
    }
    if (wake) watch.changed_.notify_one();
}

CancelWatch::Run::~Run() {
    {
        const std::lock_guard lock(watch_.mutex_);
        std::erase(watch_.runs_, this);
    }
    if (!stopped_) return;
    if (OrtStatus* status = api().RunOptionsUnsetTerminate(options_)) api().ReleaseStatus(status);
}

bool CancelWatch::Run::wanted() const noexcept {
    for (std::size_t request = 0; request < batch_.request_count(); ++request) {
        try {
            if (!batch_.cancelled(request)) return true;
        } catch (...) {
            return true;
        }
    }
    return false;
}

void CancelWatch::loop() noexcept {
    std::unique_lock lock(mutex_);
    int idle = 0;
    while (!ending_) {
        idle = runs_.empty() ? idle + 1 : 0;
        for (Run* run : runs_) {
            if (run->stopped_ || run->wanted()) continue;
            run->stopped_ = true;
            if (OrtStatus* status = api().RunOptionsSetTerminate(run->options_)) api().ReleaseStatus(status);
        }
        if (idle < patience) {
            changed_.wait_for(lock, interval, [this] { return ending_; });
        } else {
            asleep_ = true;
            changed_.wait(lock, [this] { return ending_ || !runs_.empty(); });
            asleep_ = false;
        }
    }
}

}  // namespace onnx_backend
