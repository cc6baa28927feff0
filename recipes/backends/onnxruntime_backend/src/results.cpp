#include "results.hpp"

#include "backend_kit/error.hpp"

namespace onnx_backend {

Dims shape_of(const OrtValue* value) {
    const auto info = create<ShapeInfo>(api().GetTensorTypeAndShape, value);
    std::size_t rank = 0;
    check(api().GetDimensionsCount(info.get(), &rank));
    Dims shape(rank);
    if (rank > 0) check(api().GetDimensions(info.get(), shape.data(), rank));
    return shape;
}

const void* data_of(OrtValue* value) {
    void* data = nullptr;
    check(api().GetTensorMutableData(value, &data));
    return data;
}

Texts::Texts(const OrtValue* value, std::size_t count) : offsets_(count) {
    std::size_t size = 0;
    check(api().GetStringTensorDataLength(value, &size));
    bytes_.resize(size);
    check(api().GetStringTensorContent(value, bytes_.data(), size, offsets_.data(), count));
    offsets_.push_back(size);
}

std::vector<std::string_view> Texts::views() const {
    std::vector<std::string_view> views;
    views.reserve(offsets_.size() - 1);
    for (std::size_t i = 0; i + 1 < offsets_.size(); ++i) {
        views.emplace_back(bytes_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]);
    }
    return views;
}

MapRows::MapRows(const OrtValue* sequence, OutputPart part, OrtAllocator* allocator, std::int64_t columns) {
    std::size_t count = 0;
    check(api().GetValueCount(sequence, &count));
    for (std::size_t row = 0; row < count; ++row) {
        const auto map = create<Value>(api().GetValue, sequence, static_cast<int>(row), allocator);
        const int index = part == OutputPart::keys ? 0 : 1;
        rows_.push_back(create<Value>(api().GetValue, static_cast<const OrtValue*>(map.get()), index, allocator));
        const std::int64_t entries = shape_of(rows_.back().get()).at(0);
        if (row == 0) columns = entries;
        if (entries != columns) {
            throw backend_kit::internal_error("map " + std::to_string(row) + " has " + std::to_string(entries) +
                                              " entries, the first has " + std::to_string(columns) +
                                              ": together they are not a tensor");
        }
    }
    shape_ = {static_cast<std::int64_t>(count), columns};
}

std::string MapRows::bytes(std::size_t size) const {
    std::string bytes;
    for (const Value& row : rows_) {
        bytes.append(static_cast<const char*>(data_of(row.get())), static_cast<std::size_t>(shape_[1]) * size);
    }
    return bytes;
}

std::vector<Texts> MapRows::texts() const {
    std::vector<Texts> texts;
    for (const Value& row : rows_) texts.emplace_back(row.get(), static_cast<std::size_t>(shape_[1]));
    return texts;
}

}  // namespace onnx_backend
