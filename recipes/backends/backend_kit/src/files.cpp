#include "backend_kit/files.hpp"

#include <algorithm>
#include <filesystem>
#include <span>

#include "backend_kit/error.hpp"

namespace backend_kit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view allowed_setting = "allowed-folders";

// Both paths without "." and "..". They are compared as text: macOS 11 has no iterators over the parts of a path.
bool is_inside(const fs::path& path, const fs::path& folder) {
    const std::string& start = folder.native();
    return path == folder || path.native().starts_with(start.ends_with('/') ? start : start + '/');
}

// Returns whether a path without links is inside one of the folders, which may be links.
bool is_inside_any(const fs::path& path, std::span<const fs::path> folders) {
    return std::ranges::any_of(folders, [&](const fs::path& folder) {
        std::error_code error;
        const fs::path real = fs::canonical(folder, error);
        return !error && is_inside(path, real);
    });
}

fs::path without_slash(std::string_view folder) {
    const fs::path path(folder);
    return path.has_filename() ? path : path.parent_path();
}

bool is_link(const fs::path& path) {
    std::error_code ignored;
    return fs::is_symlink(path, ignored);
}

// A path that has to be in one of some folders.
class Search {
public:
    Search(fs::path path, std::vector<fs::path> folders, std::string complaint, std::string outside)
        : path_(std::move(path)),
          folders_(std::move(folders)),
          complaint_(std::move(complaint)),
          outside_(std::move(outside)) {}

    bool found() const {
        std::error_code ignored;
        return fs::exists(path_, ignored);
    }

    std::string existing() const {
        check(path_);
        return path_.string();
    }

    // What is written may be there already. A link without a target would be followed by whoever writes.
    std::string writable() const {
        check(found() || is_link(path_) ? path_ : path_.parent_path());
        return path_.string();
    }

    [[noreturn]] void refuse() const { throw invalid_argument(complaint_ + ", which is outside " + outside_); }

private:
    void check(const fs::path& path) const {
        std::error_code error;
        const fs::path found = fs::canonical(path, error);
        if (error) {
            throw not_found(complaint_ + ", but " + path.string() + " does not exist");
        }
        if (!is_inside_any(found, folders_)) {
            refuse();
        }
    }

    fs::path path_;
    std::vector<fs::path> folders_;
    std::string complaint_;
    std::string outside_;
};

std::string complaint_of(std::string_view name, std::string_view field) {
    return std::string(field) + " is '" + std::string(name) + "'";
}

// A name that is relative to `start`, a folder of the model as seen from the model's folder. The version folder may be
// a link, so nothing is searched by way of it.
Search in_model(std::string_view version_folder, const fs::path& start, std::string_view name, std::string_view field) {
    const fs::path version = without_slash(version_folder);
    const fs::path model = version.parent_path();
    const fs::path path = model / start / name;
    Search search(path, {version, model}, complaint_of(name, field), "the model's folder");
    if (fs::path(name).is_absolute() || name.find('\0') != std::string_view::npos ||
        !is_inside(path.lexically_normal(), model.lexically_normal())) {
        search.refuse();
    }
    return search;
}

Search in_version(std::string_view version_folder, std::string_view name, std::string_view field) {
    return in_model(version_folder, without_slash(version_folder).filename(), name, field);
}

Search in_allowed(const std::vector<std::string>& allowed, std::string_view name, std::string_view field) {
    Search search(name, std::vector<fs::path>(allowed.begin(), allowed.end()), complaint_of(name, field),
                  "the model's folder and the folders of the backend's setting " + std::string(allowed_setting));
    if (allowed.empty() || name.find('\0') != std::string_view::npos) {
        search.refuse();
    }
    return search;
}

// Refuses a file that the server reads from a folder of the model.
void check_server_file(std::string_view version_folder, const fs::path& start, const JsonView& owner,
                       std::string_view field) {
    const std::string name = owner.string_or(field, "");
    if (name.empty()) {
        return;
    }
    try {
        in_model(version_folder, start, name, field).existing();
    } catch (const Error& error) {
        if (error.code() != TRITONSERVER_ERROR_NOT_FOUND) {
            throw;
        }
    }
}

void for_each_item(const JsonView& owner, std::string_view key, auto&& call) {
    if (const auto list = owner.find(key)) {
        for (const JsonView& item : list->items()) {
            call(item);
        }
    }
}

}  // namespace

std::string named_file(std::string_view version_folder, std::string_view name, std::string_view field) {
    return in_version(version_folder, name, field).existing();
}

// The folders are those of Triton's core: it joins them with the names and does not look where that leads.
void check_files(const ModelConfig& config, std::string_view version_folder) {
    const JsonView root(config.document, "config");
    check_server_file(version_folder, without_slash(version_folder).filename(), root, "default_model_filename");
    for_each_item(root, "output", [&](const JsonView& output) {
        check_server_file(version_folder, "", output, "label_filename");
    });
    if (const auto sequences = root.find("sequence_batching")) {
        for_each_item(*sequences, "state", [&](const JsonView& state) {
            for_each_item(state, "initial_state", [&](const JsonView& initial) {
                check_server_file(version_folder, "initial_state", initial, "data_file");
            });
        });
    }
    for_each_item(root, "model_warmup", [&](const JsonView& warmup) {
        const auto inputs = warmup.find("inputs");
        for (const auto& [name, input] : inputs ? inputs->members() : decltype(inputs->members()){}) {
            check_server_file(version_folder, "warmup", input, "input_data_file");
        }
    });
}

Places::Places(std::string version_folder, const BackendConfig& backend) : version_folder_(std::move(version_folder)) {
    const auto setting = backend.settings.find(allowed_setting);
    std::string_view rest = setting == backend.settings.end() ? std::string_view() : setting->second;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        const std::string_view folder = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (folder.empty()) {
            continue;
        }
        if (!fs::path(folder).is_absolute()) {
            throw invalid_argument("setting " + std::string(allowed_setting) + ": '" + std::string(folder) +
                                   "' is not an absolute path");
        }
        allowed_.emplace_back(folder);
    }
}

std::string Places::existing(std::string_view name, std::string_view field) const {
    if (fs::path(name).is_absolute()) {
        return in_allowed(allowed_, name, field).existing();
    }
    const Search beside_configuration = in_model(version_folder_, "", name, field);
    return (beside_configuration.found() ? beside_configuration : in_version(version_folder_, name, field)).existing();
}

std::string Places::writable(std::string_view name, std::string_view field) const {
    return (fs::path(name).is_absolute() ? in_allowed(allowed_, name, field) : in_version(version_folder_, name, field))
        .writable();
}

}  // namespace backend_kit
