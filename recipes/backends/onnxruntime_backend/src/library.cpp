#include "library.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#else
#include <link.h>
#endif

#include "backend_kit/error.hpp"

namespace onnx_backend {
namespace {

using Version = std::vector<unsigned long long>;

// The numbers of "1.30.0", up to the first part that is not a number.
Version version_of(std::string_view text) {
    Version version;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
        unsigned long long number = 0;
        const auto [rest, error] = std::from_chars(at, end, number);
        if (error != std::errc()) break;
        version.push_back(number);
        if (rest == end || *rest != '.') break;
        at = rest + 1;
    }
    return version;
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    char* const resolved = realpath(folder.c_str(), nullptr);
    if (resolved == nullptr) return folder;
    const std::string result = resolved;
    std::free(resolved);
    return result;
}

void expand(std::vector<std::string>& rpaths, std::string_view token, const std::string& folder) {
    for (std::string& rpath : rpaths) {
        if (rpath.starts_with(token) && (rpath.size() == token.size() || rpath[token.size()] == '/')) {
            rpath.replace(0, token.size(), folder);
        }
    }
}

// The file of the library that contains this code, as the loader knows it.
Dl_info self() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&open_library), &info) == 0 || info.dli_fname == nullptr) {
        throw backend_kit::internal_error("the loader does not know where the backend is");
    }
    return info;
}

#ifdef __APPLE__

constexpr const Naming& naming = macos_naming;

std::string program() {
    std::uint32_t size = 0;
    _NSGetExecutablePath(nullptr, &size);
    std::string path(size, '\0');
    _NSGetExecutablePath(path.data(), &size);
    return path.c_str();
}

std::vector<std::string> own_rpaths() {
    const Dl_info info = self();
    const auto* const header = static_cast<const mach_header_64*>(info.dli_fbase);
    const std::size_t size = sizeof(mach_header_64) + header->sizeofcmds;
    std::vector<std::string> rpaths = macho_rpaths({static_cast<const std::byte*>(info.dli_fbase), size});
    expand(rpaths, "@loader_path", folder_of(info.dli_fname));
    expand(rpaths, "@executable_path", folder_of(program()));
    return rpaths;
}

#else

constexpr const Naming& naming = linux_naming;

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (std::size_t end = 0; end != text.npos; text.remove_prefix(end == text.npos ? text.size() : end + 1)) {
        end = text.find(separator);
        parts.emplace_back(text.substr(0, end));
    }
    return parts;
}

// Only the library's own rpaths: LD_LIBRARY_PATH and the system's folders are not the package's choice.
std::vector<std::string> own_rpaths() {
    Dl_info info = self();
    link_map* map = nullptr;
    dladdr1(reinterpret_cast<const void*>(&open_library), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP);
    const char* strings = nullptr;
    const ElfW(Dyn)* list = nullptr;
    for (const ElfW(Dyn)* each = map->l_ld; each->d_tag != DT_NULL; ++each) {
        if (each->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(each->d_un.d_ptr);
        if (each->d_tag == DT_RUNPATH || (each->d_tag == DT_RPATH && list == nullptr)) list = each;
    }
    if (strings == nullptr || list == nullptr) return {};
    std::vector<std::string> rpaths = split(strings + list->d_un.d_val, ':');
    const std::string origin = folder_of(info.dli_fname);
    expand(rpaths, "$ORIGIN", origin);
    expand(rpaths, "${ORIGIN}", origin);
    return rpaths;
}

#endif

std::string loader_error() {
    const char* const text = dlerror();
    return text != nullptr ? text : "the loader gives no reason";
}

// Loads a file if it is a usable ONNX Runtime; otherwise gives the reason. An unusable one stays in memory: it has
// already run code of its own, and may not expect to be unloaded.
bool try_file(const std::string& path, Library& library, std::string& reason) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        reason = loader_error();
        return false;
    }
    using Entry = const OrtApiBase*() noexcept;
    const auto entry = reinterpret_cast<Entry*>(dlsym(handle, "OrtGetApiBase"));
    if (entry == nullptr) {
        reason = "is not ONNX Runtime: " + loader_error();
        return false;
    }
    const OrtApiBase* const base = entry();
    const std::string version = base->GetVersionString();
    // If asked for an API that it lacks, ONNX Runtime writes to standard error; so the version is checked first.
    if (version_of(version) < Version{1, api_version} || base->GetApi(api_version) == nullptr) {
        reason = "ONNX Runtime " + version + " does not have version " + std::to_string(api_version) + " of the API";
        return false;
    }
    library.path = path;
    library.version = version;
    library.base = base;
    return true;
}

class Search {
public:
    // Returns whether the folder has a usable library.
    bool look_in(const std::string& folder) {
        std::string reason;
        const std::vector<std::string> names = library_names(folder, naming, reason);
        if (names.empty()) {
            library.skipped.push_back(folder + ": " + (reason.empty() ? "no " + pattern() : reason));
        }
        for (const std::string& name : names) {
            if (is_usable(folder + "/" + name)) return true;
        }
        return false;
    }

    backend_kit::Error failure() const {
        std::string text = "no ONNX Runtime 1." + std::to_string(api_version) + " or later was found";
        for (const std::string& each : library.skipped) text += "; " + each;
        return backend_kit::not_found(text + ". Install it (pip install \"onnxruntime>=1." +
                                      std::to_string(api_version) + ",<2\") or put the library beside the backend, " +
                                      self().dli_fname);
    }

    Library library;

private:
    static std::string pattern() { return std::string(naming.before) + "*" + std::string(naming.after); }

    // Several names may be links to one file; it is tried under the first.
    bool is_usable(const std::string& path) {
        struct stat status{};
        std::string reason;
        if (stat(path.c_str(), &status) != 0) {
            reason = std::strerror(errno);
        } else if (!S_ISREG(status.st_mode)) {
            reason = "is not a file";
        } else if (!tried_.emplace(status.st_dev, status.st_ino).second) {
            return false;
        } else if (try_file(path, library, reason)) {
            return true;
        }
        library.skipped.push_back(reason.starts_with(path) ? reason : path + ": " + reason);
        return false;
    }

    std::set<std::pair<dev_t, ino_t>> tried_;
};

template <typename Number>
Number number_at(std::span<const std::byte> bytes, std::size_t offset) {
    Number number = 0;
    std::memcpy(&number, bytes.data() + offset, sizeof(number));
    return number;
}

}  // namespace

Library open_library() {
    // Its official builds keep a device id and a database, and send events to their maker, unless this is set before
    // they start (Privacy.md in its packages). A server must not do that unasked; its owner may still set "0".
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
    Search search;
    for (const std::string& folder : own_rpaths()) {
        // One that stays relative would be looked up in the working directory of the server.
        if (folder.starts_with('/') && search.look_in(folder)) return std::move(search.library);
    }
    throw search.failure();
}

std::vector<std::string> library_names(const std::string& folder, const Naming& naming, std::string& reason) {
    std::vector<std::pair<Version, std::string>> found;
    DIR* const directory = opendir(folder.c_str());
    if (directory == nullptr) {
        reason = std::strerror(errno);
        return {};
    }
    while (const dirent* const entry = readdir(directory)) {
        std::string_view middle = entry->d_name;
        if (middle.size() < naming.before.size() + naming.after.size()) continue;
        if (!middle.starts_with(naming.before) || !middle.ends_with(naming.after)) continue;
        middle.remove_prefix(naming.before.size());
        middle.remove_suffix(naming.after.size());
        // libonnxruntime_providers_shared.so and the like are something else.
        if (middle.empty() || middle.front() == '.') {
            found.emplace_back(version_of(middle.substr(middle.empty() ? 0 : 1)), entry->d_name);
        }
    }
    closedir(directory);
    std::sort(found.rbegin(), found.rend());
    std::vector<std::string> names;
    for (auto& [version, name] : found) names.push_back(std::move(name));
    return names;
}

std::vector<std::string> macho_rpaths(std::span<const std::byte> image) {
    // Apple's <mach-o/loader.h>: mach_header_64, and rpath_command with the offset of its text in the command.
    constexpr std::uint32_t magic = 0xfeedfacf;
    constexpr std::uint32_t rpath_command = 0x8000001c;
    constexpr std::size_t header_size = 32;
    constexpr std::size_t command_size = 8;
    constexpr std::size_t text_field = 8;
    std::vector<std::string> rpaths;
    if (image.size() < header_size || number_at<std::uint32_t>(image, 0) != magic) return rpaths;
    const std::uint32_t count = number_at<std::uint32_t>(image, 16);
    const std::size_t size = number_at<std::uint32_t>(image, 20);
    std::span<const std::byte> rest = image.subspan(header_size);
    if (size < rest.size()) rest = rest.first(size);
    for (std::uint32_t i = 0; i < count && rest.size() >= command_size; ++i) {
        const std::size_t length = number_at<std::uint32_t>(rest, 4);
        if (length < command_size || length > rest.size()) break;
        if (number_at<std::uint32_t>(rest, 0) == rpath_command && length >= text_field + sizeof(std::uint32_t)) {
            const std::size_t start = std::min<std::size_t>(number_at<std::uint32_t>(rest, text_field), length);
            const std::string_view text(reinterpret_cast<const char*>(rest.data()) + start, length - start);
            rpaths.emplace_back(text.substr(0, text.find('\0')));
        }
        rest = rest.subspan(length);
    }
    return rpaths;
}

}  // namespace onnx_backend
