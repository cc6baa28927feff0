// direct MODEL.pt DIM...: for each number on standard input, calls forward() that often on a float tensor of this shape
// and prints the nanoseconds of each call on one line.
#include <ATen/ops/linspace.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

int main(int count, char** words) {
    using Clock = std::chrono::steady_clock;
    torch::jit::Module module = torch::jit::load(words[1], at::Device(at::kCPU));
    module.eval();
    std::vector<std::int64_t> shape;
    std::int64_t elements = 1;
    for (int i = 2; i < count; ++i) {
        shape.push_back(std::stoll(words[i]));
        elements *= shape.back();
    }
    const c10::InferenceMode inference;
    const at::Tensor input = at::linspace(-1, 1, elements).reshape(shape);
    std::size_t calls = 0;
    while (std::cin >> calls) {
        for (std::size_t i = 0; i < calls; ++i) {
            const auto start = Clock::now();
            const at::Tensor output = module.forward({input}).toTensor();
            const auto end = Clock::now();
            std::cout << (i == 0 ? "" : " ") << std::chrono::nanoseconds(end - start).count();
        }
        std::cout << std::endl;
    }
}
