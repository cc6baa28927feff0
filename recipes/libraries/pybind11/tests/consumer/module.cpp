// A module with the features that Triton's Python backend uses: classes in shared pointers, enums, buffers, capsules,
// callbacks, its own exceptions, and work without the interpreter's lock.
#include <pybind11/embed.h>
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace {

enum class Kind { kCpu, kMetal };

class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Tensor {
 public:
  Tensor(std::string name, std::vector<std::int64_t> shape) : name_(std::move(name)), shape_(std::move(shape)) {
    std::int64_t count = 1;
    for (const auto size : shape_) {
      if (size < 0) {
        throw ModelError(name_ + " has a negative size");
      }
      count *= size;
    }
    data_.resize(static_cast<std::size_t>(count));
  }

  const std::string& name() const { return name_; }

  py::buffer_info buffer() {
    std::vector<py::ssize_t> shape(shape_.begin(), shape_.end());
    auto strides = py::detail::c_strides(shape, sizeof(float));
    return {data_.data(), sizeof(float), py::format_descriptor<float>::format(), static_cast<py::ssize_t>(shape.size()),
            shape, strides};
  }

  py::array_t<float> array() { return py::array_t<float>(buffer()); }

  double apply(const std::function<double(double)>& function) const {
    double sum = 0;
    for (const float value : data_) {
      sum += function(value);
    }
    return sum;
  }

  // The sum, computed by another thread, while this one holds no lock.
  double sum() const {
    double result = 0;
    std::thread thread([&] {
      for (const float value : data_) {
        result += value;
      }
    });
    thread.join();
    return result;
  }

 private:
  std::string name_;
  std::vector<std::int64_t> shape_;
  std::vector<float> data_;
};

}  // namespace

PYBIND11_MODULE(pybind11_consumer, module) {
  py::enum_<Kind>(module, "Kind").value("CPU", Kind::kCpu).value("METAL", Kind::kMetal).export_values();
  py::register_exception<ModelError>(module, "ModelError", PyExc_ValueError);
  py::class_<Tensor, std::shared_ptr<Tensor>>(module, "Tensor", py::buffer_protocol())
      .def(py::init<std::string, std::vector<std::int64_t>>(), py::arg("name"), py::arg("shape"))
      .def_property_readonly("name", &Tensor::name)
      .def_buffer(&Tensor::buffer)
      .def("array", &Tensor::array)
      .def("apply", &Tensor::apply)
      .def("sum", &Tensor::sum, py::call_guard<py::gil_scoped_release>());
  module.def("counts", [](const std::vector<std::optional<std::string>>& words) {
    std::map<std::string, int> counts;
    for (const auto& word : words) {
      ++counts[word.value_or("")];
    }
    return counts;
  });
  module.def("kind_of", [](Kind kind) { return kind == Kind::kCpu ? 0 : 1; });
  module.def("capsule", [](std::uintptr_t address) {
    return py::capsule(reinterpret_cast<void*>(address), "dltensor", [](PyObject*) {});
  });
}
