#include "extent.hpp"

#include <sys/types.h>

namespace torch_backend {

Extent::Extent(const std::string& path) : file_(std::fopen(path.c_str(), "rb"), [](std::FILE* file) {
                                              if (file != nullptr) std::fclose(file);
                                          }),
                                          name_(path) {
    if (!file_ || fseeko(file_.get(), 0, SEEK_END) != 0) refuse("cannot be read");
    const off_t end = ftello(file_.get());
    if (end < 0) refuse("cannot be read");
    size_ = static_cast<std::uint64_t>(end);
}

Extent Extent::part(std::uint64_t offset, std::uint64_t size, const std::string& name) const {
    require(offset, size, name.c_str());
    Extent result;
    result.file_ = file_;
    result.name_ = name_ + ": " + name;
    result.begin_ = begin_ + offset;
    result.size_ = size;
    return result;
}

void Extent::refuse(const std::string& complaint) const {
    throw backend_kit::invalid_argument(name_ + ": " + complaint);
}

void Extent::require(std::uint64_t offset, std::uint64_t size, const char* what) const {
    if (offset > size_ || size > size_ - offset) refuse("damaged: " + std::string(what) + " is beyond the end");
}

void Extent::read(std::uint64_t offset, void* target, std::size_t size) const {
    require(offset, size, "what is read");
    const bool placed = fseeko(file_.get(), static_cast<off_t>(begin_ + offset), SEEK_SET) == 0;
    if (!placed || std::fread(target, 1, size, file_.get()) != size) refuse("cannot be read");
}

}  // namespace torch_backend
