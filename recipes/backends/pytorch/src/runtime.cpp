#include "runtime.hpp"

#include <ATen/Parallel.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/mps.h>

#include <atomic>

#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"
#include "values.hpp"

namespace torch_backend {
namespace {

// LibTorch accepts the count of inter-op threads only once.
void set_inter_op_threads(int count) {
    static std::mutex mutex;
    static int set = 0;
    const std::lock_guard lock(mutex);
    if (set == count) return;
    if (set != 0) {
        throw backend_kit::invalid_argument("INTER_OP_THREAD_COUNT is " + std::to_string(set) +
                                            " for this process since an earlier model asked for it; it cannot become " +
                                            std::to_string(count));
    }
    try {
        at::set_num_interop_threads(count);
    } catch (...) {
        rethrow("INTER_OP_THREAD_COUNT can no longer be set in this process");
    }
    set = count;
}

// Warns when a model changes the setting of an earlier one: LibTorch has one such setting per process.
void warn_of_change(std::atomic<int>& before, bool value, const char* name) {
    const int old = before.exchange(value ? 1 : 0);
    if (old != -1 && old != (value ? 1 : 0)) {
        backend_kit::log_warning(std::string(name) + " is now " + (value ? "true" : "false") +
                                 " for all models of this process; an earlier model asked for the opposite");
    }
}

// LibTorch keeps the count per thread, and a server thread belongs to one model at a time.
void set_intra_op_threads(int count) {
    thread_local int set = 0;
    if (set == count) return;
    at::set_num_threads(count);
    set = count;
}

std::unique_lock<std::mutex> lock_metal(at::Device device) {
    static std::mutex mutex;
    return device.is_mps() ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
}

}  // namespace

RunScope::RunScope(const Settings& settings, at::Device device)
    : cleans_cache_(settings.cache_cleaning && device.is_mps()),
      inference_(settings.inference_mode),
      metal_(lock_metal(device)) {
    if (settings.intra_op_threads) set_intra_op_threads(*settings.intra_op_threads);
}

RunScope::~RunScope() {
    if (!cleans_cache_) return;
    try {
        at::detail::getMPSHooks().emptyCache();
    } catch (const std::exception& error) {
        backend_kit::log_warning(std::string("the cache of the Metal device cannot be emptied: ") + error.what());
    }
}

bool mps_available() {
    return torch::mps::is_available();
}

at::Device resolve(Device device) {
    if (device == Device::cpu) return at::kCPU;
    if (mps_available()) return at::kMPS;
    if (device == Device::best) return at::kCPU;
    throw backend_kit::unavailable(
        "DEVICE is mps, but this machine has no Metal device that LibTorch can use (no MPS)");
}

void set_process_wide(const Settings& settings) {
    static std::atomic<int> fusion{-1};
    static std::atomic<int> profiling{-1};
    static std::atomic<int> executor{-1};
    if (settings.inter_op_threads) set_inter_op_threads(*settings.inter_op_threads);
    if (settings.tensor_expr_fusion) {
        warn_of_change(fusion, *settings.tensor_expr_fusion, "ENABLE_TENSOR_EXPR_FUSION");
        torch::jit::setTensorExprFuserEnabled(*settings.tensor_expr_fusion);
    }
    if (settings.jit_profiling) {
        warn_of_change(profiling, *settings.jit_profiling, "ENABLE_JIT_PROFILING");
        torch::jit::getProfilingMode() = *settings.jit_profiling;
    }
    if (settings.jit_executor) {
        warn_of_change(executor, *settings.jit_executor, "ENABLE_JIT_EXECUTOR");
        torch::jit::getExecutorMode() = *settings.jit_executor;
    }
}

void check_type(const Port& port) {
    if (port.type == TRITONSERVER_TYPE_BYTES) return;
    try {
        scalar_type(port.type);
    } catch (const backend_kit::Error& error) {
        throw backend_kit::Error(error.code(), "'" + port.name + "': " + error.what());
    }
}

}  // namespace torch_backend
