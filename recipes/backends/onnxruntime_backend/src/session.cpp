#include "session.hpp"

#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"
#include "providers.hpp"

namespace onnx_backend {
namespace {

using backend_kit::Error;

template <class Function>
void named(const std::string& doing, Function&& function) {
    try {
        function();
    } catch (const Error& error) {
        throw Error(error.code(), doing + ": " + error.what());
    }
}

void set_threads(OrtSessionOptions* options, const Environment& environment, const SessionSource& source) {
    const Settings& settings = source.settings;
    if (environment.global_threads()) {
        check(api().DisablePerSessionThreads(options));
        return;
    }
    if (settings.intra_op_threads) check(api().SetIntraOpNumThreads(options, *settings.intra_op_threads));
    if (settings.inter_op_threads) check(api().SetInterOpNumThreads(options, *settings.inter_op_threads));
}

SessionOptions make_options(const Environment& environment, const SessionSource& source, const std::string& name) {
    const Settings& settings = source.settings;
    auto options = create<SessionOptions>(api().CreateSessionOptions);
    check(api().SetSessionLogId(options.get(), name.c_str()));
    // For the placement of nodes; take_message() drops the rest.
    check(api().SetSessionLogSeverityLevel(options.get(), ORT_LOGGING_LEVEL_VERBOSE));
    check(api().SetSessionExecutionMode(options.get(), settings.execution_mode));
    check(api().SetSessionGraphOptimizationLevel(options.get(), settings.level));
    check((settings.memory_arena ? api().EnableCpuMemArena : api().DisableCpuMemArena)(options.get()));
    check((settings.memory_pattern ? api().EnableMemPattern : api().DisableMemPattern)(options.get()));
    set_threads(options.get(), environment, source);
    for (const auto& [key, value] : settings.session_entries) {
        named("'" + key + "' of " + source.label,
              [&] { check(api().AddSessionConfigEntry(options.get(), key.c_str(), value.c_str())); });
    }
    for (const std::string& library : source.op_libraries) {
        named("operator library " + library + " of " + source.label,
              [&] { check(api().RegisterCustomOpsLibrary_V2(options.get(), library.c_str())); });
    }
    for (const backend_kit::Accelerator& accelerator : source.accelerators) {
        named(source.label, [&] { add_provider(options.get(), accelerator, environment.providers()); });
    }
    if (settings.profile_prefix) check(api().EnableProfiling(options.get(), settings.profile_prefix->c_str()));
    return options;
}

std::string placement_text(const Placement& placement, const SessionSource& source, const Environment& environment) {
    Placement all = placement;
    for (const backend_kit::Accelerator& each : source.accelerators) {
        if (const auto provider = provider_of(each.name, environment.providers())) all.try_emplace(*provider, 0);
    }
    std::string text;
    for (const auto& [provider, nodes] : all) {
        text += (text.empty() ? "" : ", ") + provider + ": " + std::to_string(nodes);
    }
    return text.empty() ? "none" : text;
}

}  // namespace

Session::Session(const Environment& environment, const SessionSource& source, const std::string& name)
    : environment_(environment),
      label_(source.label),
      accelerated_(!source.accelerators.empty()),
      profiling_(source.settings.profile_prefix.has_value()) {
    const PlacementListener listener;
    const SessionOptions options = make_options(environment, source, name);
    named("cannot load " + source.path, [&] {
        handle_ = create<SessionHandle>(api().CreateSession, environment.env(), source.path.c_str(), options.get());
    });
    backend_kit::log_info(label_ + ": nodes on " + placement_text(listener.heard(), source, environment));
}

Session::~Session() {
    if (!profiling_) return;
    try {
        char* file = nullptr;
        check(api().SessionEndProfiling(handle_.get(), environment_.allocator(), &file));
        backend_kit::log_info(label_ + ": the profile is in " + file);
        check(api().AllocatorFree(environment_.allocator(), file));
    } catch (const Error& error) {
        backend_kit::log_error(label_ + ": the profile could not be written: " + error.what());
    }
}

}  // namespace onnx_backend
