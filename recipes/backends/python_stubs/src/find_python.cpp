#include "find_python.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

namespace fs = std::filesystem;

namespace macbuild {

namespace {

// Newest first, for places that have several versions.
constexpr int kNewest = 19, kOldest = 10;

bool is_file(const fs::path& path)
{
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The entries of a folder, none if it cannot be read.
std::vector<fs::path> entries(const fs::path& folder)
{
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    found.push_back(each->path());
  }
  return found;
}

// "3.12" for a name such as libpython3.12.dylib, python3.12 or 3.12.4, with the 3 at `position`; empty if there is
// none. Builds with another ABI, such as python3.13t, do not count.
std::string version_at(const std::string& text, std::size_t position)
{
  if (text.compare(position, 2, "3.") != 0) {
    return "";
  }
  std::size_t end = position + 2;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) {
    ++end;
  }
  const bool whole = end == text.size() || text[end] == '.';
  const std::size_t digits = end - position - 2;
  return digits > 0 && digits < 4 && whole ? text.substr(position, end - position) : "";
}

std::string version_of(const std::string& name, const std::string& prefix)
{
  return name.compare(0, prefix.size(), prefix) == 0 ? version_at(name, prefix.size()) : "";
}

// Returns the value of a key in pyvenv.cfg, which has lines such as "home = /usr/local/bin".
std::string setting(const fs::path& file, const std::string& key)
{
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) {
      continue;
    }
    const auto trimmed = [](const std::string& text) {
      const std::size_t first = text.find_first_not_of(" \t\r");
      return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
    };
    if (trimmed(line.substr(0, equals)) == key) {
      return trimmed(line.substr(equals + 1));
    }
  }
  return "";
}

// The library of one version below a prefix: in a framework, or in a library folder.
std::optional<fs::path> library_below(const fs::path& prefix, const std::string& version)
{
  std::vector<fs::path> candidates;
  if (prefix.filename() == version && prefix.parent_path().filename() == "Versions") {
    candidates.push_back(prefix / "Python");
  }
  for (const char* folder : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
    for (const char* suffix : {".dylib", ".so.1.0", ".so"}) {
      candidates.push_back(prefix / folder / ("libpython" + version + suffix));
    }
  }
  const auto found = std::find_if(candidates.begin(), candidates.end(), is_file);
  return found == candidates.end() ? std::nullopt : std::optional<fs::path>(*found);
}

// The newest version whose library is in a folder; empty if there is none.
std::string version_in(const fs::path& folder)
{
  std::string best;
  for (const auto& each : entries(folder)) {
    const std::string version = version_of(each.filename().string(), "libpython");
    if (!version.empty() && (best.empty() || std::stoi(version.substr(2)) > std::stoi(best.substr(2)))) {
      best = version;
    }
  }
  return best;
}

// The program of an installation, which the interpreter uses to find its files.
fs::path program_in(const fs::path& prefix, const std::string& version)
{
  const fs::path plain = prefix / "bin" / "python3";
  return is_file(plain) ? plain : prefix / "bin" / ("python" + version);
}

void add_path(const std::string& path, Search& search)
{
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && is_file(fs::path(folder) / "python3")) {
      if (auto python = python_of_program(fs::path(folder) / "python3", search.complaints)) {
        search.found.push_back(*python);
      }
    }
  }
}

void add_prefix(const fs::path& prefix, const std::string& version, Search& search)
{
  if (auto library = library_below(prefix, version)) {
    search.found.push_back({*library, version, program_in(prefix, version)});
  }
}

// The library folder of a model's own environment, or a library. Nothing else is accepted then. An environment made by
// venv has no library, so the Python that it was made from counts.
void add_named(fs::path named, Search& search)
{
  if (!named.has_filename()) {
    named = named.parent_path();
  }
  const bool file = is_file(named);
  const fs::path folder = file ? named.parent_path() : named;
  const fs::path prefix = folder.parent_path();
  const std::string version = file ? version_of(named.filename().string(), "libpython") : version_in(folder);
  if (file && !version.empty()) {
    search.found.push_back({named, version, program_in(prefix, version)});
  } else if (!version.empty()) {
    add_prefix(prefix, version, search);
  } else if (auto python = python_of_program(prefix / "bin/python3", search.complaints)) {
    search.found.push_back(*python);
  }
  if (search.found.empty()) {
    search.complaints.push_back(named.string() + ", from MACBUILD_PYTHON_LIBRARY_PATH: no Python library found");
  }
}

// Where the installers of python.org, Homebrew and uv put a Python.
void add_usual_places(const Environment& environment, const fs::path& root, Search& search)
{
  const std::string home = environment("HOME");
  std::string own = environment("UV_PYTHON_INSTALL_DIR");
  if (own.empty() && !home.empty()) {
    own = home + "/.local/share/uv/python";
  }
  std::vector<fs::path> managed = own.empty() ? std::vector<fs::path>() : entries(own);
  std::sort(managed.begin(), managed.end());
  for (int minor = kNewest; minor >= kOldest; --minor) {
    const std::string version = "3." + std::to_string(minor);
    add_prefix(root / "Library/Frameworks/Python.framework/Versions" / version, version, search);
    for (const char* brew : {"opt/homebrew", "usr/local"}) {
      add_prefix(root / brew / "Frameworks/Python.framework/Versions" / version, version, search);
      const auto keg = root / brew / "opt" / ("python@" + version);
      add_prefix(keg / "Frameworks/Python.framework/Versions" / version, version, search);
    }
    for (const auto& each : managed) {
      if (version_of(each.filename().string(), "cpython-") == version) {
        add_prefix(each, version, search);
      }
    }
  }
}

}  // namespace

std::optional<Python> python_of_program(const fs::path& program, std::vector<std::string>& complaints)
{
  std::error_code error;
  fs::path real = fs::canonical(program, error);
  if (error) {
    complaints.push_back(program.string() + ": " + error.message());
    return std::nullopt;
  }
  std::string version;
  const fs::path settings = program.parent_path().parent_path() / "pyvenv.cfg";
  if (is_file(settings)) {
    for (const char* key : {"version", "version_info"}) {
      version = version.empty() ? version_at(setting(settings, key), 0) : version;
    }
    const std::string home = setting(settings, "home");
    if (!home.empty() && !version.empty()) {
      const fs::path base = fs::path(home) / ("python" + version);
      const fs::path resolved = fs::canonical(is_file(base) ? base : fs::path(home) / "python3", error);
      real = error ? real : resolved;
    }
  }
  const fs::path prefix = real.parent_path().parent_path();
  const std::string named = version_of(real.filename().string(), "python");
  version = named.empty() ? version : named;
  version = version.empty() ? version_in(prefix / "lib") : version;
  if (version.empty()) {
    complaints.push_back(program.string() + ": unknown Python version");
    return std::nullopt;
  }
  if (auto library = library_below(prefix, version)) {
    return Python{*library, version, program};
  }
  complaints.push_back(program.string() + ": Python " + version + " without a library below " + prefix.string());
  return std::nullopt;
}

Search find_pythons(const Environment& environment, const fs::path& root)
{
  Search search;
  const std::string named = environment("MACBUILD_PYTHON_LIBRARY_PATH");
  if (!named.empty()) {
    add_named(named, search);
    return search;
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const fs::path program = fs::path(environment(variable)) / "bin/python3";
    if (!environment(variable).empty() && is_file(program)) {
      if (auto python = python_of_program(program, search.complaints)) {
        search.found.push_back(*python);
      }
    }
  }
  add_path(environment("PATH"), search);
  add_usual_places(environment, root, search);
  return search;
}

}  // namespace macbuild
