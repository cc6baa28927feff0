// Files that a configuration names.
#pragma once

#include <string>
#include <string_view>

namespace backend_kit {

// The path of a file or folder that a field of the configuration names, relative to the version folder of the model
// (ModelInfo::folder). A configuration may come from a client, so the path must stay inside the model's folder, also
// when all symbolic links are followed. Throws Error: invalid argument for a path that leaves it, and for an absolute
// one; not found for a file that is not there. `field` is the field's name, for messages.
std::string named_file(std::string_view version_folder, std::string_view name, std::string_view field);

}  // namespace backend_kit
