#pragma once
#include <cstddef>
#include <string>
#include <vector>
namespace triton { namespace server {

// The `count` highest values as "<value>:<index>".
std::vector<std::string> TopkClassifications(const float* values, size_t size, size_t count);

}}  // namespace triton::server
