#pragma once
#include <string>
#include <vector>
namespace triton { namespace common {

std::string PrintTable(const std::vector<std::vector<std::string>>& rows);

}}  // namespace triton::common
