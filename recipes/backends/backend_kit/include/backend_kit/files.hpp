// Files that a configuration names. It may come from a client, so they have to stay where the administrator of the
// server wants them: inside the model's folder, and nowhere else unless a setting of the command line allows it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend_kit/config.hpp"

namespace backend_kit {

// The path of a file or folder that a field of the configuration names, relative to the version folder of the model
// (ModelInfo::folder). It must be inside the model's folder, also when all symbolic links are followed; the folders of
// the model and of the version may be links themselves, to anywhere. Throws Error: invalid argument for a path that
// leaves it, and for an absolute one; not found for a file that is not there. `field` is the field's name, for messages.
std::string named_file(std::string_view version_folder, std::string_view name, std::string_view field);

// Refuses a configuration whose file of the model, labels, initial states or warmup data lie outside the model's
// folder: the server reads most of these itself, wherever they are. Files that do not exist are left to whoever reads
// them. Throws Error (invalid argument).
void check_files(const ModelConfig& config, std::string_view version_folder);

// Where a model may name files and folders: in its own folder, by a path relative to the version folder; and by an
// absolute path in the folders that the setting `allowed-folders` of the backend lists, separated by `:`.
class Places {
public:
    Places(std::string version_folder, const BackendConfig& backend);

    // The path of a file or folder that exists, found in the model's folder, beside the configuration, or else in the
    // version folder. Throws Error as named_file does.
    std::string existing(std::string_view name, std::string_view field) const;
    // The path of a file or folder that may be written; the folder that it is in exists. Throws the same.
    std::string writable(std::string_view name, std::string_view field) const;

private:
    std::string version_folder_;
    std::vector<std::string> allowed_;
};

}  // namespace backend_kit
