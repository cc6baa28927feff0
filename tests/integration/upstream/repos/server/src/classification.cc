#include "classification.h"

#include <algorithm>
#include <numeric>
namespace triton { namespace server {

std::vector<std::string>
TopkClassifications(const float* values, size_t size, size_t count)
{
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(size, count); ++i) {
    texts.push_back(std::to_string(values[order[i]]) + ":" + std::to_string(order[i]));
  }
  return texts;
}

}}  // namespace triton::server
