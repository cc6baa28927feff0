// The parts of pybind11 that need no interpreter: names of types, pieces of signatures, and strides.
#include <pybind11/buffer_info.h>
#include <pybind11/detail/descr.h>
#include <pybind11/detail/typeid.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace py = pybind11;

int main() {
  static_assert(PYBIND11_VERSION_MAJOR >= 2);
  constexpr auto signature = py::detail::const_name("list[") + py::detail::const_name<true>("float", "int") +
                             py::detail::const_name("]");
  const std::string type = py::type_id<std::vector<int>>();
  const std::vector<py::ssize_t> shape{2, 3, 4};
  if (std::string_view(signature.text) != "list[float]" || type.find("vector<int") == std::string::npos ||
      py::detail::c_strides(shape, 4) != std::vector<py::ssize_t>{48, 16, 4} ||
      py::detail::f_strides(shape, 4) != std::vector<py::ssize_t>{4, 8, 24}) {
    std::fprintf(stderr, "wrong: %s, %s\n", signature.text, type.c_str());
    return 1;
  }
  return 0;
}
