#include "providers.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "backend_kit/error.hpp"
#include "runtime.hpp"

namespace onnx_backend {
namespace {

constexpr std::string_view suffix = "ExecutionProvider";
constexpr std::string_view cpu = "cpu";

// Providers whose name in the function that appends them differs from that in the list of providers.
constexpr std::array<std::pair<std::string_view, const char*>, 2> other_names{{
    {"azure", "AZURE"},
    {"xnnpack", "XNNPACK"},
}};

// The options of providers for macOS, from their documentation; used only in error messages.
constexpr std::array<std::pair<std::string_view, const char*>, 2> documented_options{{
    {"coreml",
     "ModelFormat, MLComputeUnits, RequireStaticInputShapes, EnableOnSubgraphs, ModelCacheDirectory, "
     "SpecializationStrategy, ProfileComputePlan, AllowLowPrecisionAccumulationOnGPU"},
    {"xnnpack", "intra_op_num_threads"},
}};

std::string lower(std::string_view text) {
    std::string result(text);
    std::ranges::transform(result, result.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return result;
}

std::string without_suffix(const std::string& provider) {
    return provider.ends_with(suffix) ? provider.substr(0, provider.size() - suffix.size()) : provider;
}

const char* value_of(const auto& table, std::string_view key) {
    const auto found = std::ranges::find(table, key, [](const auto& row) { return row.first; });
    return found == table.end() ? nullptr : found->second;
}

std::string short_names(const std::vector<std::string>& providers) {
    std::vector<std::string> names;
    for (const std::string& provider : providers) names.push_back(lower(without_suffix(provider)));
    std::ranges::sort(names);
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

}  // namespace

std::optional<std::string> provider_of(std::string_view name, const std::vector<std::string>& available) {
    const std::string wanted = lower(without_suffix(std::string(name)));
    const auto found = std::ranges::find_if(
        available, [&](const std::string& provider) { return lower(without_suffix(provider)) == wanted; });
    return found == available.end() ? std::nullopt : std::optional(*found);
}

void add_provider(OrtSessionOptions* options, const backend_kit::Accelerator& accelerator,
                  const std::vector<std::string>& available) {
    const auto provider = provider_of(accelerator.name, available);
    if (!provider) {
        throw backend_kit::invalid_argument("ONNX Runtime " + library().version + " has no execution provider '" +
                                            accelerator.name + "'; available: " + short_names(available));
    }
    const std::string full_name = without_suffix(*provider);
    const std::string name = lower(full_name);
    if (name == cpu) {
        if (accelerator.parameters.empty()) return;  // it is in each session
        throw backend_kit::invalid_argument("the execution provider cpu takes no options");
    }
    std::vector<const char*> keys;
    std::vector<const char*> values;
    for (const auto& [key, value] : accelerator.parameters) {
        keys.push_back(key.c_str());
        values.push_back(value.c_str());
    }
    const char* other_name = value_of(other_names, name);
    try {
        check(api().SessionOptionsAppendExecutionProvider(options, other_name ? other_name : full_name.c_str(),
                                                          keys.data(), values.data(), keys.size()));
    } catch (const backend_kit::Error& error) {
        const char* documented = value_of(documented_options, name);
        throw backend_kit::Error(error.code(), "execution provider " + name + ": " + error.what() +
                                                   (documented ? "; its options: " + std::string(documented) : ""));
    }
}

}  // namespace onnx_backend
