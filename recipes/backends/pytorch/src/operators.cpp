#include "operators.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "backend_kit/error.hpp"
#include "backend_kit/files.hpp"
#include "backend_kit/log.hpp"
#include "extent.hpp"

namespace torch_backend {
namespace {

using backend_kit::invalid_argument;

bool exists(const std::string& path) {
    return std::ifstream(path).good();
}

// The names in a list that is separated by commas. `owner` is the parameter or setting, for messages.
std::vector<std::string> names_in(const std::string& owner, std::string_view list) {
    std::vector<std::string> names;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        std::string_view name = list.substr(begin, end - begin);
        name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
        name = name.substr(0, name.find_last_not_of(' ') + 1);
        if (name.empty()) throw invalid_argument(owner + ": '" + std::string(list) + "' has an empty name");
        names.emplace_back(name);
        begin = end + 1;
    }
    return names;
}

bool same_bytes(const std::string& left, const std::string& right) {
    using Bytes = std::istreambuf_iterator<char>;
    std::ifstream first(left, std::ios::binary), second(right, std::ios::binary);
    return first && second && std::equal(Bytes(first), Bytes(), Bytes(second), Bytes());
}

// Refuses a file that the system's loader would only misunderstand. It checks universal libraries itself.
void check_header(const std::string& owner, const std::string& path) {
    constexpr std::uint32_t universal = 0xbebafeca;
    try {
        const Extent library(path);
        if (library.size() < 4 || library.u32(0) != universal) check_library(library);
    } catch (const backend_kit::Error& error) {
        throw backend_kit::Error(error.code(), owner + ": " + error.what());
    }
}

// The parts in front of "::" in the names of all operators.
std::set<std::string> name_spaces() {
    std::set<std::string> result;
    for (const auto& operation : c10::Dispatcher::singleton().getAllOpNames()) {
        result.insert(operation.name.substr(0, operation.name.find("::")));
    }
    return result;
}

struct Loaded {
    std::string path;
    std::vector<std::string> name_spaces;  // that it was the first to define
};

// A second definition of an operator ends the process. A library has the name of each namespace that it defines as a
// text of its own.
void check_definitions(const std::string& owner, const std::string& path, const std::vector<Loaded>& loaded) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (const Loaded& each : loaded) {
        for (const std::string& name : each.name_spaces) {
            if (bytes.find('\0' + name + '\0') == std::string::npos) continue;
            throw invalid_argument(owner + ": " + path + " defines operators of " + name + ", and so does " +
                                   each.path + ", which is loaded until the server ends");
        }
    }
}

void load(const std::string& owner, const std::string& path) {
    static std::mutex mutex;
    static std::vector<Loaded> loaded;
    const std::lock_guard lock(mutex);
    const bool is_known = std::any_of(loaded.begin(), loaded.end(), [&](const Loaded& each) {
        return each.path == path || same_bytes(each.path, path);
    });
    if (is_known) return;
    check_header(owner, path);
    check_definitions(owner, path, loaded);
    const std::set<std::string> before = name_spaces();
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
        const char* const said = dlerror();
        const std::string reason = said != nullptr ? said : "the system gives no reason";
        throw invalid_argument(owner + ": cannot load " + path + ": " + reason);
    }
    const std::set<std::string> after = name_spaces();
    loaded.push_back({path, {}});
    std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                        std::back_inserter(loaded.back().name_spaces));
    backend_kit::log_info("loaded the operators in " + path);
}

}  // namespace

void load_operators(const backend_kit::BackendInfo& backend) {
    // The parameter's name in lower case works too, as for all settings.
    for (const char* name : {"operator-libraries", "operator_libraries"}) {
        const auto setting = backend.config.settings.find(name);
        if (setting == backend.config.settings.end()) continue;
        const std::string owner = "setting " + std::string(name) + " of backend " + backend.name;
        for (const std::string& path : names_in(owner, setting->second)) {
            if (!path.starts_with('/')) throw invalid_argument(owner + ": '" + path + "' is not an absolute path");
            if (!exists(path)) throw backend_kit::not_found(owner + ": " + path + " does not exist");
            load(owner, path);
        }
    }
}

void load_operators(const backend_kit::ModelInfo& model) {
    const auto parameter = model.config.parameters.find("OPERATOR_LIBRARIES");
    if (parameter == model.config.parameters.end()) return;
    const std::string owner = "parameter OPERATOR_LIBRARIES of model " + model.name;
    for (const std::string& name : names_in(owner, parameter->second)) {
        const std::string above = "../" + name;
        const bool is_above = !exists(model.folder + "/" + name) && exists(model.folder + "/" + above);
        load(owner, backend_kit::named_file(model.folder, is_above ? above : name, owner));
    }
}

}  // namespace torch_backend
