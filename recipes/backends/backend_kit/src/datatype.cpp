#include "backend_kit/datatype.hpp"

#include <array>
#include <limits>

#include "backend_kit/error.hpp"

namespace backend_kit {
namespace {

struct Row {
    std::string_view name;
    std::string_view config_name;
    std::size_t size;
};

// In the order of the enumerators.
constexpr std::array<Row, 15> table{{
    {"INVALID", "TYPE_INVALID", 0},
    {"BOOL", "TYPE_BOOL", 1},
    {"UINT8", "TYPE_UINT8", 1},
    {"UINT16", "TYPE_UINT16", 2},
    {"UINT32", "TYPE_UINT32", 4},
    {"UINT64", "TYPE_UINT64", 8},
    {"INT8", "TYPE_INT8", 1},
    {"INT16", "TYPE_INT16", 2},
    {"INT32", "TYPE_INT32", 4},
    {"INT64", "TYPE_INT64", 8},
    {"FP16", "TYPE_FP16", 2},
    {"FP32", "TYPE_FP32", 4},
    {"FP64", "TYPE_FP64", 8},
    {"BYTES", "TYPE_STRING", 0},
    {"BF16", "TYPE_BF16", 2},
}};
static_assert(TRITONSERVER_TYPE_BF16 + 1 == table.size());

const Row& row(DataType datatype) noexcept {
    const auto index = static_cast<std::size_t>(datatype);
    return index < table.size() ? table[index] : table[0];
}

std::size_t product(std::size_t left, std::size_t right, Shape shape) {
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
    if (right != 0 && left > most / right) {
        throw invalid_argument("shape " + shape_text(shape) + " is too large");
    }
    return left * right;
}

}  // namespace

std::string_view datatype_name(DataType datatype) noexcept { return row(datatype).name; }

std::string_view config_type_name(DataType datatype) noexcept { return row(datatype).config_name; }

DataType datatype_of_config(std::string_view name) {
    for (std::size_t index = 1; index < table.size(); ++index) {
        if (table[index].config_name == name) {
            return static_cast<DataType>(index);
        }
    }
    throw invalid_argument("'" + std::string(name) + "' is not a data type");
}

std::size_t datatype_size(DataType datatype) noexcept { return row(datatype).size; }

std::size_t element_count(Shape shape) {
    std::size_t count = 1;
    bool empty = false;
    for (const std::int64_t dimension : shape) {
        if (dimension < 0) {
            throw invalid_argument("shape " + shape_text(shape) + " has a negative dimension");
        }
        empty = empty || dimension == 0;
        count = product(count, dimension == 0 ? 1 : static_cast<std::size_t>(dimension), shape);
    }
    return empty ? 0 : count;
}

std::size_t tensor_size(DataType datatype, Shape shape) {
    const std::size_t size = datatype_size(datatype);
    if (size == 0) {
        throw invalid_argument("type " + std::string(datatype_name(datatype)) + " has no fixed size");
    }
    return product(element_count(shape), size, shape);
}

std::string shape_text(Shape shape) {
    std::string text = "[";
    for (const std::int64_t dimension : shape) {
        if (text.size() > 1) {
            text += ',';
        }
        text += std::to_string(dimension);
    }
    return text + "]";
}

}  // namespace backend_kit
