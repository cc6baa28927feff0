// Stops runs that all clients have given up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "backend_kit/batch.hpp"
#include "runtime.hpp"

namespace onnx_backend {

// One thread that checks, while anything runs, whether a client still waits for it. It sleeps while the server is idle,
// and a busy server does not wake it for each run.
class CancelWatch {
public:
    CancelWatch() = default;
    ~CancelWatch();
    CancelWatch(const CancelWatch&) = delete;
    CancelWatch& operator=(const CancelWatch&) = delete;

    // A run that is watched as long as this object lives. Its options can be used again by the next run.
    class Run {
    public:
        Run(CancelWatch& watch, const backend_kit::Batch& batch, OrtRunOptions* options);
        ~Run();
        Run(const Run&) = delete;
        Run& operator=(const Run&) = delete;

        // Returns whether the run was told to stop.
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
