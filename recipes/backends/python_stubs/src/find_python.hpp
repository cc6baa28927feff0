// Finds the Python that a stub runs: the environment that the server names, the active one, the first python3 on PATH,
// or one in the usual places. No program is started to find it.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace macbuild {

struct Python {
  std::filesystem::path library;  // the shared library of the interpreter
  std::string version;            // such as 3.12
  std::filesystem::path program;  // its python3, which the interpreter uses to find its own files
};

// Returns the value of an environment variable, empty if it is not set.
using Environment = std::function<std::string(const char*)>;

struct Search {
  std::vector<Python> found;            // in order of preference
  std::vector<std::string> complaints;  // places without a usable Python, with the reason
};

// Returns the Python of a python3 at this path; a virtual environment counts as the Python that it was made from.
std::optional<Python> python_of_program(const std::filesystem::path& program, std::vector<std::string>& complaints);

// `root` is put before the usual places, so that a test can have its own.
Search find_pythons(const Environment& environment, const std::filesystem::path& root = "/");

}  // namespace macbuild
