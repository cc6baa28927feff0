// Errors, environments with and without thread pools, options of sessions.
#include <filesystem>
#include <iterator>
#include <string_view>

#include "check.hpp"

namespace check {
namespace {

std::ptrdiff_t threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

void statuses(Check& check) {
    constexpr const char* words = "a \xc3\xa4 \xe6\x97\xa5 b";
    OrtStatus* status = nullptr;
    const auto make = [&] { status = CALL(CreateStatus, ORT_NOT_IMPLEMENTED, words); };
    const auto release = [&] { CALL(ReleaseStatus, status); };
    PROVED(ReleaseStatus, gives_back(make, release), "the memory of an error is given back");
    make();
    PROVED(CreateStatus, status != nullptr, "makes an error");
    PROVED(GetErrorCode, CALL(GetErrorCode, status) == ORT_NOT_IMPLEMENTED, "returns the error's code");
    PROVED(GetErrorMessage, CALL(GetErrorMessage, status) == std::string_view(words), "returns the error's message");
    release();
}

// Tries options on a model that does not exist: ONNX Runtime logs a session's options before it opens the file.
class Options {
public:
    Options(Check& owner, const OrtEnv* env) : check(owner), env_(env) { OK(CreateSessionOptions, &options); }
    ~Options() { CALL(ReleaseSessionOptions, options); }
    Options(const Options&) = delete;
    Options& operator=(const Options&) = delete;

    Refusal refusal() {
        OrtSession* session = nullptr;
        return REFUSED(CreateSession, env_, "/no/such/model.onnx", options, &session);
    }

    // The record of the options, empty if there was none.
    Record record() {
        check.log.take();
        refusal();
        for (Record& each : check.log.take()) {
            if (each.message.starts_with("Session Options")) return std::move(each);
        }
        return {};
    }

    bool shows(std::string_view part) { return contains(record().message, part); }

    Check& check;
    OrtSessionOptions* options = nullptr;

private:
    const OrtEnv* env_;
};

void options_of_sessions(Check& check, const OrtEnv* env) {
    Options tried(check, env);
    OrtSessionOptions* const options = tried.options;
    const Refusal refusal = tried.refusal();
    PROVED(CreateSession, refusal.code == ORT_NO_SUCHFILE && contains(refusal.message, "/no/such/model.onnx"),
           "names a missing file");
    PROVED(CreateSessionOptions, tried.shows("execution_mode:0"), "options of a session");
    OK(SetSessionExecutionMode, options, ORT_PARALLEL);
    PROVED(SetSessionExecutionMode, tried.shows("execution_mode:1"), "the mode is among the options");
    OK(DisableMemPattern, options);
    PROVED(DisableMemPattern, tried.shows("enable_mem_pattern:0"), "off among the options");
    OK(EnableMemPattern, options);
    PROVED(EnableMemPattern, tried.shows("enable_mem_pattern:1"), "on again among the options");
    OK(DisableCpuMemArena, options);
    PROVED(DisableCpuMemArena, tried.shows("enable_cpu_mem_arena:0"), "off among the options");
    OK(EnableCpuMemArena, options);
    PROVED(EnableCpuMemArena, tried.shows("enable_cpu_mem_arena:1"), "on again among the options");
    OK(SetSessionLogId, options, "a log id");
    PROVED(SetSessionLogId, tried.record().id == "a log id", "the session's messages have the id");
    OK(SetSessionGraphOptimizationLevel, options, ORT_ENABLE_BASIC);
    PROVED(SetSessionGraphOptimizationLevel, tried.shows("graph_optimization_level:1"),
           "the level is among the options");
    OK(SetIntraOpNumThreads, options, 3);
    PROVED(SetIntraOpNumThreads, tried.shows("intra_op_param:OrtThreadPoolParams { thread_pool_size: 3"),
           "the count is among the options");
    OK(SetInterOpNumThreads, options, 2);
    PROVED(SetInterOpNumThreads, tried.shows("inter_op_param:OrtThreadPoolParams { thread_pool_size: 2"),
           "the count is among the options");
    OK(AddSessionConfigEntry, options, "session.disable_prepacking", "1");
    PROVED(AddSessionConfigEntry, tried.shows("session.disable_prepacking: 1"), "the entry is among the options");
    OK(DisablePerSessionThreads, options);
    PROVED(DisablePerSessionThreads,
           tried.shows("use_per_session_threads:0") && contains(tried.refusal().message, "GlobalThreadPools"),
           "refused without global thread pools");
}

void silence_and_extensions(Check& check, const OrtEnv* env) {
    Options tried(check, env);
    OrtSessionOptions* const options = tried.options;
    const Refusal provider =
        REFUSED(SessionOptionsAppendExecutionProvider, options, "NoSuchProvider", nullptr, nullptr, 0);
    PROVED(SessionOptionsAppendExecutionProvider,
           provider.code == ORT_INVALID_ARGUMENT && contains(provider.message, "Unknown provider name"),
           "refuses an unknown provider");
    const Refusal operators = REFUSED(RegisterCustomOpsLibrary_V2, options, "/no/such/operators.so");
    PROVED(RegisterCustomOpsLibrary_V2, contains(operators.message, "load library /no/such/operators.so"),
           "names a missing file");
    OK(SetSessionLogSeverityLevel, options, ORT_LOGGING_LEVEL_FATAL);
    PROVED(SetSessionLogSeverityLevel, tried.record().message.empty(), "silences a session");
    OrtSessionOptions* more = nullptr;
    PROVED(ReleaseSessionOptions,
           gives_back([&] { OK(CreateSessionOptions, &more); }, [&] { CALL(ReleaseSessionOptions, more); }),
           "the memory of the options is given back");
}

void providers(Check& check) {
    char** list = nullptr;
    int count = 0;
    const auto take = [&] { OK(GetAvailableProviders, &list, &count); };
    const auto release = [&] { OK(ReleaseAvailableProviders, list, count); };
    take();
    const std::string last = list[count - 1];
    release();
    PROVED(GetAvailableProviders, last == "CPUExecutionProvider", "the CPU is the last of them");
    PROVED(ReleaseAvailableProviders, gives_back(take, release), "the memory of the list is given back");
}

// Checks how many threads an environment with global pools starts, and that its sessions use them.
std::ptrdiff_t pool_threads(Check& check, int intra, int inter, Log& log) {
    OrtThreadingOptions* pools = nullptr;
    OrtEnv* env = nullptr;
    OK(CreateThreadingOptions, &pools);
    OK(SetGlobalIntraOpNumThreads, pools, intra);
    OK(SetGlobalInterOpNumThreads, pools, inter);
    const std::ptrdiff_t before = threads();
    OK(CreateEnvWithCustomLoggerAndGlobalThreadPools, &Log::write, &log, ORT_LOGGING_LEVEL_VERBOSE, "pools", pools,
       &env);
    const std::ptrdiff_t count = threads() - before;
    Options tried(check, env);
    OK(DisablePerSessionThreads, tried.options);
    const OrtErrorCode code = tried.refusal().code;
    CALL(ReleaseThreadingOptions, pools);
    CALL(ReleaseEnv, env);
    return code == ORT_NO_SUCHFILE ? count : -1;
}

void thread_pools(Check& check) {
    OrtThreadingOptions* pools = nullptr;
    Log other;
    check.log.take();
    // A pool of n has n - 1 threads of its own.
    const std::ptrdiff_t intra = pool_threads(check, 4, 1, other);
    const bool moved = check.log.take().empty() && !other.take().empty();
    PROVED(ReleaseEnv, moved, "a later environment takes its place, with its log");
    PROVED(SetGlobalIntraOpNumThreads, intra == 3, "that many threads");
    PROVED(SetGlobalInterOpNumThreads, pool_threads(check, 1, 3, other) == 2, "that many threads");
    PROVED(CreateEnvWithCustomLoggerAndGlobalThreadPools, intra == 3, "sessions do without threads of their own");
    const auto make = [&] { OK(CreateThreadingOptions, &pools); };
    const auto release = [&] { CALL(ReleaseThreadingOptions, pools); };
    const bool given_back = gives_back(make, release);
    PROVED(CreateThreadingOptions, pools != nullptr, "options of pools");
    PROVED(ReleaseThreadingOptions, given_back, "the memory of the options is given back");
}

}  // namespace

void call_all(Check& check, const std::string& model) {
    statuses(check);
    providers(check);
    OrtEnv* env = nullptr;
    OK(CreateEnvWithCustomLogger, &Log::write, &check.log, ORT_LOGGING_LEVEL_VERBOSE, "environment", &env);
    // The end of telemetry cannot be observed: main.cpp starts the library without it.
    OK(DisableTelemetryEvents, env);
    PROVED(DisableTelemetryEvents, true, "succeeds");
    options_of_sessions(check, env);
    silence_and_extensions(check, env);
    check.log.take();
    call_sessions(check, env, model);
    PROVED(CreateEnvWithCustomLogger, !check.log.take().empty(), "messages come to a function of ours");
    CALL(ReleaseEnv, env);
    thread_pools(check);
}

}  // namespace check
