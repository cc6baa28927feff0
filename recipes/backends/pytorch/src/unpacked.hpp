// Packages that are unpacked into private folders. No LibTorch here.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend_kit/json.hpp"

namespace torch_backend {

struct Content;
class Contents;

// An AOTInductor package, checked and unpacked for as long as this object lives. Packages of the same bytes share one
// folder. Systems may keep a library in memory after it was closed; then the folder stays until the process ends, and
// the next package of the same bytes finds its library already loaded, instead of adding another copy.
class Unpacked {
public:
    // Throws backend_kit::Error: invalid argument for a damaged package (see check_archive) and for one that has no
    // model called "model" or no library; unavailable if it cannot be written to the folder for temporary files.
    explicit Unpacked(const std::string& path);
    Unpacked(const Unpacked&) = delete;
    Unpacked& operator=(const Unpacked&) = delete;
    ~Unpacked();

    // The folder that has "data/aotinductor/model".
    const std::string& folder() const;

    // The object that describes the package: device, system, and what its author added.
    backend_kit::Json metadata() const;

    // Returns whether a library of the package has this text in it.
    bool libraries_contain(std::string_view text) const;

private:
    std::shared_ptr<Contents> contents_;
    Content* content_ = nullptr;
};

}  // namespace torch_backend
