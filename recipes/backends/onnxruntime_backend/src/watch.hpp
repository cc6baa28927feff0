// Stops runs whose requests were all given up by their clients.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "backend_kit/batch.hpp"
#include "runtime.hpp"

namespace onnx_backend {

// One thread that asks, while anything runs, whether somebody still wants it. It sleeps when the server is idle, and is
// not woken for each run while the server is busy.
class CancelWatch {
public:
    CancelWatch() = default;
    ~CancelWatch();
    CancelWatch(const CancelWatch&) = delete;
    CancelWatch& operator=(const CancelWatch&) = delete;

    // One run under watch, for as long as it lives. Its options can serve the next run.
    class Run {
    public:
        Run(CancelWatch& watch, const backend_kit::Batch& batch, OrtRunOptions* options);
        ~Run();
        Run(const Run&) = delete;
        Run& operator=(const Run&) = delete;

        // Whether the run was told to stop.
        bool stopped() const noexcept { return stopped_; }

    private:
        friend class CancelWatch;
        bool wanted() const noexcept;

        CancelWatch& watch_;
        const backend_kit::Batch& batch_;
        OrtRunOptions* options_;
        std::atomic<bool> stopped_ = false;
    };

private:
    void loop() noexcept;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Run*> runs_;
    bool asleep_ = false;
    bool ending_ = false;
    std::thread thread_;  // started by the first run
};

}  // namespace onnx_backend
