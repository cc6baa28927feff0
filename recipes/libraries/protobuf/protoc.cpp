// protoc with the languages that this project's builds generate. Others are available as plugins.
#include "google/protobuf/compiler/command_line_interface.h"
#include "google/protobuf/compiler/cpp/generator.h"
#include "google/protobuf/compiler/python/generator.h"
#include "google/protobuf/compiler/python/pyi_generator.h"

int main(int argc, char** argv) {
  namespace compiler = google::protobuf::compiler;
  compiler::CommandLineInterface protoc;
  protoc.AllowPlugins("protoc-");

  compiler::cpp::CppGenerator cpp;
  protoc.RegisterGenerator("--cpp_out", "--cpp_opt", &cpp, "Generate C++ headers and sources.");

  compiler::python::Generator python;
  python.set_opensource_runtime(true);
  protoc.RegisterGenerator("--python_out", "--python_opt", &python, "Generate Python modules.");

  compiler::python::PyiGenerator pyi;
  protoc.RegisterGenerator("--pyi_out", &pyi, "Generate Python stub files.");

  return protoc.Run(argc, argv);
}
