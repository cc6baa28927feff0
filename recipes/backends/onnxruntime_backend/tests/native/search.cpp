// A library that searches for ONNX Runtime as the backend does, by its own rpaths.
#include <cstdio>
#include <exception>

#include "library.hpp"

extern "C" __attribute__((visibility("default"))) int search() {
    try {
        const onnx_backend::Library library = onnx_backend::open_library();
        for (const std::string& each : library.skipped) std::printf("skipped %s\n", each.c_str());
        std::printf("found %s %s\n", library.path.c_str(), library.version.c_str());
        return library.base->GetVersionString() == library.version ? 0 : 1;
    } catch (const std::exception& error) {
        std::printf("%s\n", error.what());
        return 2;
    }
}
