// Results of a run, as ONNX Runtime's values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ports.hpp"
#include "runtime.hpp"

namespace onnx_backend {

Dims shape_of(const OrtValue* value);
const void* data_of(OrtValue* value);

// The elements of a tensor of strings, copied.
class Texts {
public:
    Texts(const OrtValue* value, std::size_t count);

    std::vector<std::string_view> views() const;

private:
    std::string bytes_;
    std::vector<std::size_t> offsets_;  // with the end of the last one
};

// The keys or the values of a sequence of maps: a row for each map.
class MapRows {
public:
    // Throws backend_kit::Error (internal) if the maps have different numbers of entries. `columns` is their number if
    // there is no map at all.
    MapRows(const OrtValue* sequence, OutputPart part, OrtAllocator* allocator, std::int64_t columns);

    const Dims& shape() const noexcept { return shape_; }
    // The elements of all rows; `size` is that of an element in bytes.
    std::string bytes(std::size_t size) const;
    // The same for strings.
    std::vector<Texts> texts() const;

private:
    Dims shape_;
    std::vector<Value> rows_;
};

}  // namespace onnx_backend
