// One instance: it passes batches to a session and returns the results.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "backend_kit/backend.hpp"
#include "kept.hpp"
#include "ports.hpp"
#include "runtime.hpp"
#include "session.hpp"
#include "watch.hpp"

namespace onnx_backend {

// Result of comparing an output's shape with the declared one in all runs so far.
enum class Declared { untried, true_so_far, untrue };

// State shared by all instances of a model.
struct Shared {
    const Environment& environment;
    CancelWatch& watch;
    const backend_kit::ModelConfig& config;
    Plan plan{};
    std::vector<std::atomic<Declared>> declared{};  // by output
};

class OnnxInstance final : public backend_kit::Instance {
public:
    OnnxInstance(Shared& shared, std::shared_ptr<Session> session, const Settings& settings);

    void run(backend_kit::Batch& batch) override;

private:
    class Execution;

    Inputs gather(backend_kit::Batch& batch) const;
    bool keeps(const backend_kit::Batch& batch) const;
    bool run_kept(backend_kit::Batch& batch);
    void compute(const backend_kit::Batch& batch, OrtIoBinding* binding);

    Shared& shared_;
    std::shared_ptr<Session> session_;
    RunOptions run_options_;
    IoBinding binding_;
    KeptBinding kept_;
};

}  // namespace onnx_backend
