// direct_pytorch MODEL.pt DIM...: calls forward() of a TorchScript file on a float tensor of this shape, as described
// in calls.hpp.
#include <ATen/ops/linspace.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "calls.hpp"

int main(int count, char** words) {
    torch::jit::Module module = torch::jit::load(words[1], at::Device(at::kCPU));
    module.eval();
    const std::vector<std::int64_t> shape = bench::shape_of(count, words, 2);
    std::int64_t elements = 1;
    for (const std::int64_t dim : shape) elements *= dim;
    const c10::InferenceMode inference;
    const at::Tensor input = at::linspace(-1, 1, elements).reshape(shape);
    bench::answer([&] { const at::Tensor output = module.forward({input}).toTensor(); });
}
