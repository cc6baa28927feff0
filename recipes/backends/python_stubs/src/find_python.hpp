// Which Python a stub is to run: by the environment that the server names, by the one that is active, by the first python3
// on PATH, or by the usual places. No program is started for it.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace macbuild {

struct Python {
  std::filesystem::path library;  // the shared library that has the interpreter
  std::string version;            // as 3.12
  std::filesystem::path program;  // its python3, by which the interpreter finds its own files
};

// Yields the value of an environment variable, empty if it is not set.
using Environment = std::function<std::string(const char*)>;

struct Search {
  std::vector<Python> found;            // in order of preference
  std::vector<std::string> complaints;  // what was looked at in vain
};

// What belongs to a python3 that is at this path; a virtual environment counts as the Python that it was made from.
std::optional<Python> python_of_program(const std::filesystem::path& program, std::vector<std::string>& complaints);

// `root` stands before the usual places, so that a test can have its own.
Search find_pythons(const Environment& environment, const std::filesystem::path& root = "/");

}  // namespace macbuild
