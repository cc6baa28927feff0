#pragma once
#include <cstddef>
#include <string>

#include "model_config.pb.h"
namespace triton { namespace common {

// KServe's name of a data type, and back; 0 bytes for what has no fixed size.
const char* DataTypeToProtocolString(inference::DataType type);
inference::DataType ProtocolStringToDataType(const std::string& name);
size_t GetDataTypeByteSize(inference::DataType type);

}}  // namespace triton::common
