#include "pb_stub.h"

#include <dlpack/dlpack.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "pb_message.h"
namespace py = pybind11;
namespace triton { namespace backend { namespace python {

namespace {

// Triton's name, numpy's name, and how DLPack says it.
struct Type {
  const char* triton;
  const char* numpy;
  DLDataTypeCode code;
  uint8_t bits;
};
const Type kTypes[] = {{"BOOL", "bool", kDLUInt, 8},     {"UINT8", "uint8", kDLUInt, 8},
                       {"UINT16", "uint16", kDLUInt, 16}, {"UINT32", "uint32", kDLUInt, 32},
                       {"UINT64", "uint64", kDLUInt, 64}, {"INT8", "int8", kDLInt, 8},
                       {"INT16", "int16", kDLInt, 16},    {"INT32", "int32", kDLInt, 32},
                       {"INT64", "int64", kDLInt, 64},    {"FP16", "float16", kDLFloat, 16},
                       {"FP32", "float32", kDLFloat, 32}, {"FP64", "float64", kDLFloat, 64}};

const Type&
Find(const char* Type::*which, const std::string& name)
{
  for (const auto& each : kTypes) {
    if (name == each.*which) {
      return each;
    }
  }
  throw PythonBackendException("no tensor can be of the type " + name);
}

// What a tensor of Python holds.
struct Tensor {
  std::string name;
  py::array array;

  Tensor(const std::string& name, const py::array& array)
      : name(name), array(py::module_::import("numpy").attr("ascontiguousarray")(array))
  {
  }
  explicit Tensor(const TensorData& data)
      : name(data.name), array(py::dtype(Find(&Type::triton, data.dtype).numpy), data.shape)
  {
    memcpy(array.mutable_data(), data.bytes.data(), data.bytes.size());
  }
  TensorData Data() const
  {
    const auto& type = Find(&Type::numpy, py::str(array.dtype()));
    return {name, type.triton, {array.shape(), array.shape() + array.ndim()},
            std::string(static_cast<const char*>(array.data()), static_cast<size_t>(array.nbytes()))};
  }
  py::capsule ToDLPack() const
  {
    struct Held {
      DLManagedTensor managed;
      std::vector<int64_t> shape;
      py::array array;
    };
    const auto& type = Find(&Type::numpy, py::str(array.dtype()));
    auto* held = new Held{{}, {array.shape(), array.shape() + array.ndim()}, array};
    held->managed.dl_tensor = {const_cast<void*>(array.data()), {kDLCPU, 0}, static_cast<int32_t>(array.ndim()),
                               {static_cast<uint8_t>(type.code), type.bits, 1}, held->shape.data(), nullptr, 0};
    held->managed.manager_ctx = held;
    held->managed.deleter = [](DLManagedTensor* each) {
      py::gil_scoped_acquire gil;
      delete static_cast<Held*>(each->manager_ctx);
    };
    return py::capsule(&held->managed, "dltensor", [](PyObject* capsule) {
      if (PyCapsule_IsValid(capsule, "dltensor")) {
        auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
        managed->deleter(managed);
      }
    });
  }
};

struct InferenceRequest {
  std::vector<std::shared_ptr<Tensor>> inputs;
  std::vector<std::string> requested;
};

struct InferenceResponse {
  std::vector<std::shared_ptr<Tensor>> outputs;
  std::string error;
};

struct TritonError {
  std::string message;
};

PYBIND11_EMBEDDED_MODULE(c_python_backend_utils, module)
{
  py::class_<TritonError>(module, "TritonError")
      .def(py::init<std::string>())
      .def("message", [](const TritonError& each) { return each.message; });
  py::class_<Tensor, std::shared_ptr<Tensor>>(module, "Tensor")
      .def(py::init<const std::string&, const py::array&>())
      .def("name", [](const Tensor& each) { return each.name; })
      .def("as_numpy", [](const Tensor& each) { return each.array; })
      .def("to_dlpack", &Tensor::ToDLPack)
      .def("is_cpu", [](const Tensor&) { return true; });
  py::class_<InferenceRequest, std::shared_ptr<InferenceRequest>>(module, "InferenceRequest")
      .def("inputs", [](const InferenceRequest& each) { return each.inputs; })
      .def("requested_output_names", [](const InferenceRequest& each) { return each.requested; });
  py::class_<InferenceResponse, std::shared_ptr<InferenceResponse>>(module, "InferenceResponse")
      .def(py::init([](std::vector<std::shared_ptr<Tensor>> outputs, const TritonError* error) {
             return InferenceResponse{std::move(outputs), error == nullptr ? "" : error->message};
           }),
           py::arg("output_tensors"), py::arg("error") = nullptr)
      .def("output_tensors", [](const InferenceResponse& each) { return each.outputs; });
}

}  // namespace

void
Stub::Instantiate(
    size_t shm_growth_size, size_t shm_default_size, const std::string& shm_region_name, const std::string& model_path,
    pid_t parent_id, const std::string& triton_install_path, Handle ipc_control_handle, const std::string& name)
{
  model_path_ = model_path;
  triton_install_path_ = triton_install_path;
  parent_id_ = parent_id;
  shm_pool_ = std::make_unique<SharedMemoryManager>(shm_region_name, shm_default_size, shm_growth_size, false);
  ipc_control_ = shm_pool_->Load<IPCControl>(ipc_control_handle);
  if (ipc_control_->uses_env) {
    // The programs that the model starts shall not find the environment's libraries.
    const char* path = getenv("LD_LIBRARY_PATH");
    const std::string folders = path == nullptr ? "" : path;
    const size_t colon = folders.find(':');
    if (colon == std::string::npos) {
      throw PythonBackendException("LD_LIBRARY_PATH must have the environment's folder in front");
    }
    setenv("LD_LIBRARY_PATH", folders.c_str() + colon + 1, 1);
  }
  watcher_ = std::thread([this] { WatchParent(); });
}

Stub::~Stub()
{
  stopping_ = true;
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

void
Stub::WatchParent()
{
  while (!stopping_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ipc_control_->stub_health = true;
    if (kill(parent_id_, 0) != 0) {
      std::cerr << "Non-graceful termination detected.\n";
      _Exit(1);
    }
  }
}

void
Stub::Run()
{
  while (!stopping_) {
    Handle handle = 0;
    if (!ipc_control_->stub_message_queue.Pop(&handle, 1000)) {
      continue;
    }
    const std::string answer = Answer(shm_pool_->Take(handle));
    ipc_control_->parent_message_queue.Push(shm_pool_->Store(answer), 1000);
  }
}

std::string
Stub::Answer(const std::string& message)
{
  try {
    switch (message[0]) {
      case kInitialize:
        Initialize(message);
        break;
      case kExecute:
        return Execute(message);
      default:
        stopping_ = true;
        if (model_ && py::hasattr(model_, "finalize")) {
          model_.attr("finalize")();
        }
        model_ = py::object();
    }
    return std::string(1, kDone);
  }
  catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

void
Stub::Initialize(const std::string& message)
{
  const size_t slash = model_path_.rfind('/');
  Reader reader(message, 1);
  py::dict arguments;
  arguments["model_config"] = reader.Text();
  arguments["model_instance_name"] = reader.Text();
  arguments["model_repository"] = model_path_.substr(0, slash);
  py::list path = py::module_::import("sys").attr("path");
  path.insert(0, model_path_.substr(0, slash));
  path.append(triton_install_path_);
  py::module_ utils = py::module_::import("triton_python_backend_utils");
  py::module_ own = py::module_::import("c_python_backend_utils");
  for (const char* each : {"TritonError", "Tensor", "InferenceRequest", "InferenceResponse"}) {
    utils.attr(each) = own.attr(each);
  }
  model_ = py::module_::import("model").attr("TritonPythonModel")();
  if (py::hasattr(model_, "initialize")) {
    model_.attr("initialize")(arguments);
  }
}

std::string
Stub::Execute(const std::string& message)
{
  py::list requests;
  for (const auto& batch : Decode(message)) {
    auto request = std::make_shared<InferenceRequest>();
    request->requested = batch.requested;
    for (const auto& each : batch.tensors) {
      request->inputs.push_back(std::make_shared<Tensor>(each));
    }
    requests.append(request);
  }
  std::vector<Batch> answers;
  for (const auto& each : py::list(model_.attr("execute")(requests))) {
    const auto& response = each.cast<const InferenceResponse&>();
    Batch answer;
    answer.error = response.error;
    for (const auto& tensor : response.outputs) {
      answer.tensors.push_back(tensor->Data());
    }
    answers.push_back(std::move(answer));
  }
  return Encode(kDone, answers);
}

}}}  // namespace triton::backend::python

extern "C" {

int
main(int argc, char** argv)
{
  using namespace triton::backend::python;
  if (argc < 9) {
    std::cerr << "Expected 9 arguments, found " << argc << " arguments.\n";
    return 1;
  }
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  try {
    py::scoped_interpreter guard;
    Stub stub;
    stub.Instantiate(
        std::stoull(argv[4]), std::stoull(argv[3]), argv[2], argv[1], static_cast<pid_t>(std::stol(argv[5])), argv[6],
        std::stoll(argv[7]), argv[8]);
    stub.Run();
  }
  catch (const std::exception& error) {
    std::cerr << "Failed to run the stub: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}
