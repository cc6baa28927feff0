// Libraries that a server loads, and the folders it searches, without DYLD_* and without fixed paths.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace macbuild::compat {

enum class Plugin { backend, cache, repository_agent };

// The file name that Triton's core expects: libtriton_x.so, libtritoncache_x.so, libtritonrepoagent_x.so.
std::string library_name(Plugin plugin, std::string_view name);

// The names that a library may have, in the order in which they are tried: as requested, then with the other suffix
// (`.so`, `.dylib`). A name with neither suffix has no alternative.
std::vector<std::string> library_names(std::string_view name);

// The first file with one of the names, folder by folder: a model's own folder counts before the general one, and in a
// folder the requested name counts first. `tried` gets each path that was checked.
std::optional<std::string> find_library(std::span<const std::string> folders, std::string_view name,
                                        std::vector<std::string>* tried = nullptr);

// Loads a library by path (RTLD_NOW, RTLD_LOCAL), or the one beside it with the other suffix if the first does not
// exist. Null with the reason in `error`: dlopen's own message for each path that was tried.
void* open_library(std::string_view path, std::string& error);

// The running program, links resolved. Empty if the system does not tell.
std::string executable_path();

// The image that contains an address, links resolved: the program or a library. Empty if there is none.
std::string image_path(const void* address);

// A folder of an installation: `<prefix>/<name>`, where `prefix` is two levels above the image that contains `address`
// (`<prefix>/bin/tritonserver`, `<prefix>/lib/libtritonserver.dylib`), else above the program. The first that exists;
// `fixed` if only that exists; if none does, the one beside the image, so that messages name it.
std::string installed_folder(std::string_view name, std::string_view fixed, const void* address);

}  // namespace macbuild::compat
