#include "triton/common/table_printer.h"

#include <algorithm>
namespace triton { namespace common {

std::string
PrintTable(const std::vector<std::vector<std::string>>& rows)
{
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += "| " + row[i] + std::string(widths[i] - row[i].size() + 1, ' ');
    }
    text += "|\n";
  }
  return text;
}

}}  // namespace triton::common
