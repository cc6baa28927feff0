// Finds and loads ONNX Runtime. The backend is not linked to it: each release has its full version in its file name, and
// most have it in their install name, so a link would bind to a single release.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api.hpp"

namespace onnx_backend {

// A loaded ONNX Runtime. It stays loaded until the process ends.
struct Library {
    std::string path;
    std::string version;  // such as "1.30.0"
    const OrtApiBase* base = nullptr;
    std::vector<std::string> skipped;  // unusable libraries found before it: "<place>: <reason>"
};

// Searches the folders of the rpaths of the library that contains this code, in order, and loads the newest ONNX
// Runtime of the first folder that has a usable one. Throws Error (not found) that lists everything tried. Telemetry of
// ONNX Runtime is off from then on in this process, unless the environment sets it.
Library open_library();

// The name of the library's file: the parts before and after its version.
struct Naming {
    std::string_view before;
    std::string_view after;
};
constexpr Naming linux_naming{"libonnxruntime.so", ""};
constexpr Naming macos_naming{"libonnxruntime", ".dylib"};

// The names in a folder that match, with or without a version after a point: the newest version first, no version
// last. Versions are compared as numbers. A folder that cannot be read has no names, and `reason` gets the cause.
std::vector<std::string> library_names(const std::string& folder, const Naming& naming, std::string& reason);

// The rpaths (LC_RPATH) in the header and load commands of a 64-bit Mach-O image, in order, as written there. A
// malformed command, which reaches beyond the end, and all commands after it are ignored.
std::vector<std::string> macho_rpaths(std::span<const std::byte> image);

}  // namespace onnx_backend
