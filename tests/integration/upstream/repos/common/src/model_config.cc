#include "triton/common/model_config.h"
namespace triton { namespace common {
namespace {

constexpr struct {
  inference::DataType type;
  const char* name;
  size_t size;
} kTypes[] = {
    {inference::TYPE_BOOL, "BOOL", 1},     {inference::TYPE_UINT8, "UINT8", 1},   {inference::TYPE_UINT16, "UINT16", 2},
    {inference::TYPE_UINT32, "UINT32", 4}, {inference::TYPE_UINT64, "UINT64", 8}, {inference::TYPE_INT8, "INT8", 1},
    {inference::TYPE_INT16, "INT16", 2},   {inference::TYPE_INT32, "INT32", 4},   {inference::TYPE_INT64, "INT64", 8},
    {inference::TYPE_FP16, "FP16", 2},     {inference::TYPE_FP32, "FP32", 4},     {inference::TYPE_FP64, "FP64", 8},
    {inference::TYPE_STRING, "BYTES", 0},  {inference::TYPE_BF16, "BF16", 2},
};

}  // namespace

const char*
DataTypeToProtocolString(inference::DataType type)
{
  for (const auto& each : kTypes) {
    if (each.type == type) {
      return each.name;
    }
  }
  return "<invalid>";
}

inference::DataType
ProtocolStringToDataType(const std::string& name)
{
  for (const auto& each : kTypes) {
    if (name == each.name) {
      return each.type;
    }
  }
  return inference::TYPE_INVALID;
}

size_t
GetDataTypeByteSize(inference::DataType type)
{
  for (const auto& each : kTypes) {
    if (each.type == type) {
      return each.size;
    }
  }
  return 0;
}

}}  // namespace triton::common
