#include "macbuild/compat/libraries.hpp"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>

#include "macbuild/compat/forced.h"
#include "macbuild/compat/stack_trace.hpp"

namespace macbuild::compat {
namespace {

constexpr std::string_view suffixes[] = {".so", ".dylib"};
constexpr std::string_view fixed_prefix = "/opt/tritonserver";

bool is_file(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_folder(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string joined(std::string_view folder, std::string_view name) {
    if (folder.empty() || name.starts_with('/')) {
        return std::string(name);
    }
    return std::string(folder) + (folder.ends_with('/') ? "" : "/") + std::string(name);
}

std::string resolved(const std::string& path) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), std::free);
    return real ? std::string(real.get()) : path;
}

// The folder above the folder of a file; empty if there is none.
std::string prefix_of(const std::string& path) {
    const std::size_t name = path.rfind('/');
    const std::size_t folder = name == std::string::npos || name == 0 ? std::string::npos : path.rfind('/', name - 1);
    if (folder == std::string::npos) {
        return {};
    }
    return folder == 0 ? "/" : path.substr(0, folder);
}

// A text that C code may keep.
const char* kept(const std::string& text) {
    static std::mutex& mutex = *new std::mutex;
    static std::set<std::string>& texts = *new std::set<std::string>;
    const std::lock_guard lock(mutex);
    return texts.insert(text).first->c_str();
}

}  // namespace

std::string library_name(Plugin plugin, std::string_view name) {
    const char* stem = plugin == Plugin::backend ? "libtriton_"
                       : plugin == Plugin::cache ? "libtritoncache_"
                                                 : "libtritonrepoagent_";
    return stem + std::string(name) + ".so";
}

std::vector<std::string> library_names(std::string_view name) {
    std::vector<std::string> names{std::string(name)};
    for (const std::string_view suffix : suffixes) {
        if (name.size() > suffix.size() && name.ends_with(suffix)) {
            const std::string_view other = suffix == suffixes[0] ? suffixes[1] : suffixes[0];
            names.push_back(std::string(name.substr(0, name.size() - suffix.size())) + std::string(other));
        }
    }
    return names;
}

std::optional<std::string> find_library(std::span<const std::string> folders, std::string_view name,
                                        std::vector<std::string>* tried) {
    for (const std::string& folder : folders) {
        for (const std::string& each : library_names(name)) {
            std::string path = joined(folder, each);
            if (tried != nullptr) {
                tried->push_back(path);
            }
            if (is_file(path)) {
                return path;
            }
        }
    }
    return std::nullopt;
}

void* open_library(std::string_view path, std::string& error) {
    error.clear();
    for (const std::string& each : library_names(path)) {
        dlerror();
        void* library = dlopen(each.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr) {
            error.clear();
            return library;
        }
        const char* reason = dlerror();
        error += (error.empty() ? "" : "; ") + each + ": " + (reason != nullptr ? reason : "dlopen gives no reason");
        if (is_file(each)) {
            break;  // This is the requested file, and its error is known.
        }
    }
    return nullptr;
}

std::string image_path(const void* address) {
    const auto image = std::make_unique<Image>();
    const bool found = find_image(reinterpret_cast<std::uintptr_t>(address), *image);
    return found ? resolved(image->path) : std::string();
}

std::string installed_folder(std::string_view name, std::string_view fixed, const void* address) {
    std::string first;
    for (const std::string& path : {image_path(address), executable_path()}) {
        const std::string prefix = prefix_of(path);
        if (prefix.empty()) {
            continue;
        }
        std::string folder = joined(prefix, name);
        if (is_folder(folder)) {
            return folder;
        }
        if (first.empty()) {
            first = std::move(folder);
        }
    }
    return first.empty() || is_folder(std::string(fixed)) ? std::string(fixed) : first;
}

}  // namespace macbuild::compat

extern "C" const char* macbuild_compat_directory(const char* fixed) {
    using namespace macbuild::compat;
    std::string_view name = fixed;
    if (!name.starts_with(fixed_prefix)) {
        return fixed;
    }
    name.remove_prefix(fixed_prefix.size());
    while (name.starts_with('/')) {
        name.remove_prefix(1);
    }
    return kept(installed_folder(name, fixed, reinterpret_cast<const void*>(&macbuild_compat_directory)));
}

extern "C" const char* macbuild_compat_library_file(const char* path) {
    using namespace macbuild::compat;
    const std::string folder;
    const std::optional<std::string> found = find_library({&folder, 1}, path);
    return kept(found ? *found : std::string(path));
}
