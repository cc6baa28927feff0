#include "backend_kit/files.hpp"

#include <algorithm>
#include <filesystem>

#include "backend_kit/error.hpp"

namespace backend_kit {
namespace {

namespace fs = std::filesystem;

// Both paths without "." and "..". They are compared as text: macOS 11 has no iterators over the parts of a path.
bool is_inside(const fs::path& path, const fs::path& folder) {
    const std::string& start = folder.native();
    return path == folder || path.native().starts_with(start.ends_with('/') ? start : start + '/');
}

}  // namespace

std::string named_file(std::string_view version_folder, std::string_view name, std::string_view field) {
    const std::string named = std::string(field) + " is '" + std::string(name) + "'";
    const auto refuse = [&] { throw invalid_argument(named + ", which is outside the model's folder"); };
    fs::path version(version_folder);
    if (!version.has_filename()) {
        version = version.parent_path();  // a slash at the end
    }
    const fs::path path = version / name;
    if (fs::path(name).is_absolute() || name.find('\0') != std::string_view::npos ||
        !is_inside(path.lexically_normal(), version.parent_path().lexically_normal())) {
        refuse();
    }
    std::error_code error;
    const fs::path found = fs::canonical(path, error);
    if (error) {
        throw not_found(named + ", but " + path.string() + " does not exist");
    }
    // The folder of the version, or of the model, may be a link itself.
    const bool inside = std::ranges::any_of(std::initializer_list<fs::path>{version, version.parent_path()},
                                            [&](const fs::path& folder) {
                                                const fs::path real = fs::canonical(folder, error);
                                                return !error && is_inside(found, real);
                                            });
    if (!inside) {
        refuse();
    }
    return path.string();
}

}  // namespace backend_kit
