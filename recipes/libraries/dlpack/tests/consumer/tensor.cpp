// A tensor made in C++ and read in C, with an offset, strides and a deleter, as the Python backend passes tensors.
#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

extern "C" double sum_of_floats(const DLTensor* tensor);

namespace {

struct Owner {
  std::vector<float> data = std::vector<float>(13);
  std::array<std::int64_t, 2> shape{3, 2};
  std::array<std::int64_t, 2> strides{4, 1};
  DLManagedTensor tensor{};
};

int deleted = 0;

DLManagedTensor* make() {
  auto owner = std::make_unique<Owner>();
  std::iota(owner->data.begin(), owner->data.end(), 0.0F);
  auto& tensor = owner->tensor;
  tensor.dl_tensor = {owner->data.data(),    {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, owner->shape.data(),
                      owner->strides.data(), 4};
  tensor.manager_ctx = owner.get();
  tensor.deleter = [](DLManagedTensor* self) {
    delete static_cast<Owner*>(self->manager_ctx);
    ++deleted;
  };
  return &owner.release()->tensor;
}

}  // namespace

int main() {
  auto* tensor = make();
  const double sum = sum_of_floats(&tensor->dl_tensor);
  tensor->deleter(tensor);
  // Rows of two, starting at the elements 1, 5 and 9.
  if (sum != 1 + 2 + 5 + 6 + 9 + 10 || deleted != 1) {
    std::fprintf(stderr, "the sum is %g, and %d tensors are deleted\n", sum, deleted);
    return 1;
  }
  return 0;
}
