#include <cstdint>
#include <vector>

#include "backend_kit/datatype.hpp"
#include "testing.hpp"

using namespace backend_kit;

TEST(every_type_has_name_size_and_configuration_name) {
    const struct {
        DataType type;
        const char* name;
        const char* config;
        std::size_t size;
    } rows[] = {
        {TRITONSERVER_TYPE_BOOL, "BOOL", "TYPE_BOOL", 1},       {TRITONSERVER_TYPE_UINT8, "UINT8", "TYPE_UINT8", 1},
        {TRITONSERVER_TYPE_UINT16, "UINT16", "TYPE_UINT16", 2}, {TRITONSERVER_TYPE_UINT32, "UINT32", "TYPE_UINT32", 4},
        {TRITONSERVER_TYPE_UINT64, "UINT64", "TYPE_UINT64", 8}, {TRITONSERVER_TYPE_INT8, "INT8", "TYPE_INT8", 1},
        {TRITONSERVER_TYPE_INT16, "INT16", "TYPE_INT16", 2},    {TRITONSERVER_TYPE_INT32, "INT32", "TYPE_INT32", 4},
        {TRITONSERVER_TYPE_INT64, "INT64", "TYPE_INT64", 8},    {TRITONSERVER_TYPE_FP16, "FP16", "TYPE_FP16", 2},
        {TRITONSERVER_TYPE_FP32, "FP32", "TYPE_FP32", 4},       {TRITONSERVER_TYPE_FP64, "FP64", "TYPE_FP64", 8},
        {TRITONSERVER_TYPE_BYTES, "BYTES", "TYPE_STRING", 0},   {TRITONSERVER_TYPE_BF16, "BF16", "TYPE_BF16", 2},
    };
    for (const auto& row : rows) {
        CHECK_EQUAL(datatype_name(row.type), row.name);
        CHECK_EQUAL(config_type_name(row.type), row.config);
        CHECK_EQUAL(datatype_size(row.type), row.size);
        CHECK_EQUAL(static_cast<int>(datatype_of_config(row.config)), static_cast<int>(row.type));
    }
}

TEST(unknown_types_are_reported) {
    CHECK_EQUAL(datatype_name(static_cast<DataType>(14 + 1)), "INVALID");
    CHECK_EQUAL(datatype_size(TRITONSERVER_TYPE_INVALID), 0U);
    CHECK_INVALID("'FP32' is not a data type", datatype_of_config("FP32"));
    CHECK_INVALID("'TYPE_INVALID' is not a data type", datatype_of_config("TYPE_INVALID"));
}

TEST(sizes_follow_from_shapes) {
    CHECK_EQUAL(element_count({}), 1U);
    CHECK_EQUAL(element_count(std::vector<std::int64_t>{2, 3, 4}), 24U);
    CHECK_EQUAL(element_count(std::vector<std::int64_t>{2, 0, 4}), 0U);
    CHECK_EQUAL(tensor_size(TRITONSERVER_TYPE_FP64, std::vector<std::int64_t>{2, 3}), 48U);
    CHECK_EQUAL(tensor_size(TRITONSERVER_TYPE_BOOL, {}), 1U);
    CHECK_INVALID("type BYTES has no fixed size", tensor_size(TRITONSERVER_TYPE_BYTES, {}));
}

TEST(hostile_shapes_are_refused) {
    const std::vector<std::int64_t> negative{2, -1};
    const std::vector<std::int64_t> large{INT64_MAX, 2};
    const std::vector<std::int64_t> large_and_empty{INT64_MAX, INT64_MAX, 0};
    const std::vector<std::int64_t> bytes_too_many{INT64_MAX / 4};
    CHECK_INVALID("shape [2,-1] has a negative dimension", element_count(negative));
    CHECK_INVALID("shape [9223372036854775807,2] is too large", element_count(large));
    CHECK_INVALID("shape [9223372036854775807,9223372036854775807,0] is too large", element_count(large_and_empty));
    CHECK_EQUAL(element_count(bytes_too_many), static_cast<std::size_t>(INT64_MAX / 4));
    CHECK_INVALID("shape [2305843009213693951] is too large", tensor_size(TRITONSERVER_TYPE_INT64, bytes_too_many));
}
