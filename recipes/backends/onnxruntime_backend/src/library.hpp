// Finds and loads ONNX Runtime. The backend is not linked to it: each release has its full version in its file name, and
// most have it in their install name, so a link would bind to one of them.
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
    std::string version;  // as "1.30.0"
    const OrtApiBase* base = nullptr;
    std::vector<std::string> skipped;  // what came before it in the search and was no good: "<place>: <reason>"
};

// Looks in the folders of the rpaths of the library that this code is in, in order, and loads the newest ONNX Runtime
// of the first folder that has a usable one. Throws Error (not found) with all that was looked at. Telemetry of ONNX
// Runtime is off from then on in this process, unless the environment says otherwise.
Library open_library();

// The name of the library's file, around its version.
struct Naming {
    std::string_view before;
    std::string_view after;
};
constexpr Naming linux_naming{"libonnxruntime.so", ""};
constexpr Naming macos_naming{"libonnxruntime", ".dylib"};

// The names in a folder that are such, or such with a point and a version: the newest version first, none last. Numbers
// count, not text. A folder that cannot be read has none, and `reason` then says why.
std::vector<std::string> library_names(const std::string& folder, const Naming& naming, std::string& reason);

// The rpaths (LC_RPATH) in the header and load commands of a 64-bit Mach-O image, in order, as written there. Of
// malformed commands nothing is taken: not the one that reaches beyond the end, and none after it.
std::vector<std::string> macho_rpaths(std::span<const std::byte> image);

}  // namespace onnx_backend
