// triton_python_backend_stub: loads the library of a Python, then the stub that was built for its version, which is
// beside this program, and runs it. The stub takes Python's symbols from the process, as extension modules do, so it
// does not matter where Python is or what its library is called, and no DYLD_* variable is needed.
//
// With --python instead of the server's arguments it prints the Python that it would use.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "find_python.hpp"
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace fs = std::filesystem;

namespace {

// The server's arguments: model, region, its size, its growth, parent, folder of the backend, handle, name, and more.
constexpr int kLeast = 9;
constexpr int kFolder = 6;

std::string variable(const char* name)
{
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path own_folder()
{
  std::error_code error;
#ifdef __APPLE__
  std::uint32_t size = 0;
  _NSGetExecutablePath(nullptr, &size);
  std::string path(size, '\0');
  if (_NSGetExecutablePath(path.data(), &size) != 0) {
    return "";
  }
  return fs::canonical(path.c_str(), error).parent_path();
#else
  return fs::canonical("/proc/self/exe", error).parent_path();
#endif
}

// The stub for a version: beside this program, or in the backend's own folder if this is a copy in a model's folder.
fs::path stub_for(const std::string& version, const char* backend)
{
  const std::string name = "libtriton_python_backend_stub-" + version + ".so";
  for (const fs::path& folder : {own_folder(), fs::path(backend)}) {
    std::error_code error;
    if (!folder.empty() && fs::is_regular_file(folder / name, error)) {
      return folder / name;
    }
  }
  return "";
}

// The interpreter finds its files through the first python3 on PATH.
void put_first_on_path(const fs::path& program)
{
  const std::string folder = program.parent_path().string();
  const std::string path = variable("PATH");
  if (path != folder && path.compare(0, folder.size() + 1, folder + ":") != 0) {
    setenv("PATH", (path.empty() ? folder : folder + ":" + path).c_str(), 1);
  }
}

std::string reason()
{
  const char* text = dlerror();
  return text == nullptr ? "unknown" : text;
}

// Opens the library for all images that follow, and checks that it is the Python version that its name says.
bool open_python(const macbuild::Python& python, std::string& why)
{
  void* handle = dlopen(python.library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    why = reason();
    return false;
  }
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(handle, "Py_GetVersion"));
  const std::string text = version == nullptr ? "" : version();
  if (text.compare(0, python.version.size() + 1, python.version + ".") != 0) {
    why = python.library.string() + " is not Python " + python.version + " but '" + text + "'";
    dlclose(handle);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv)
{
  const bool asked = argc == 2 && std::strcmp(argv[1], "--python") == 0;
  if (argc < kLeast && !asked) {
    // The server starts it without arguments to check that it can be executed, and expects this exit status.
    std::fprintf(stderr, "Triton's Python backend starts this program; try --python\n");
    return 1;
  }
  macbuild::Search search = macbuild::find_pythons(variable);
  for (const auto& python : search.found) {
    const fs::path stub = stub_for(python.version, asked ? "" : argv[kFolder]);
    std::string why;
    if (stub.empty()) {
      search.complaints.push_back(python.library.string() + ": there is no stub for Python " + python.version);
    } else if (!open_python(python, why)) {
      search.complaints.push_back(why);
    } else if (asked) {
      std::printf("%s\n%s\n%s\n%s\n", python.version.c_str(), python.library.c_str(), python.program.c_str(), stub.c_str());
      return 0;
    } else {
      put_first_on_path(python.program);
      void* handle = dlopen(stub.c_str(), RTLD_NOW | RTLD_LOCAL);
      const auto run =
          handle == nullptr ? nullptr : reinterpret_cast<int (*)(int, char**)>(dlsym(handle, "macbuild_python_stub"));
      if (run != nullptr) {
        return run(argc, argv);
      }
      std::fprintf(stderr, "%s\n", reason().c_str());
      return 1;
    }
  }
  std::fprintf(stderr, "no Python that the backend can use was found\n");
  for (const auto& each : search.complaints) {
    std::fprintf(stderr, "  %s\n", each.c_str());
  }
  return 1;
}
