// Tests folders as python.org, Homebrew, conda, uv and venv lay them out, and which Python is found in each.
#include "find_python.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

namespace fs = std::filesystem;

namespace {

int failures = 0;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      ++failures;                                                               \
    }                                                                           \
  } while (false)

// A folder for one test, removed at its end.
struct World {
  World()
  {
    char name[] = "/tmp/find-python-XXXXXX";
    root = fs::canonical(mkdtemp(name));
  }
  ~World() { fs::remove_all(root); }

  fs::path file(const std::string& path, const std::string& text = "") const
  {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
    return root / path;
  }
  fs::path link(const std::string& path, const fs::path& target) const
  {
    fs::create_directories((root / path).parent_path());
    fs::create_symlink(target, root / path);
    return root / path;
  }
  macbuild::Search find(const std::map<std::string, std::string>& variables) const
  {
    return macbuild::find_pythons(
        [&variables](const char* name) {
          const auto found = variables.find(name);
          return found == variables.end() ? std::string() : found->second;
        },
        root);
  }
  std::string at(const std::string& path) const { return (root / path).string(); }

  fs::path root;
};

void framework_is_found_through_links_on_path()
{
  World world;
  const std::string versions = "opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/Versions/3.12";
  const fs::path library = world.file(versions + "/Python");
  world.file(versions + "/bin/python3.12");
  world.link(versions + "/bin/python3", "python3.12");
  world.link("bin/python3", world.root / versions / "bin/python3");
  const auto search = world.find({{"PATH", world.at("nowhere") + "::" + world.at("bin")}});
  CHECK(search.found.size() == 1);
  CHECK(search.found.at(0).library == library);
  CHECK(search.found.at(0).version == "3.12");
  CHECK(search.found.at(0).program == world.root / "bin/python3");
}

void usual_places_come_last_and_newest_first()
{
  World world;
  for (const char* version : {"3.10", "3.13"}) {
    world.file(std::string("Library/Frameworks/Python.framework/Versions/") + version + "/Python");
  }
  world.file("usr/local/opt/python@3.11/Frameworks/Python.framework/Versions/3.11/Python");
  world.file("home/.local/share/uv/python/cpython-3.12.4-macos-aarch64-none/lib/libpython3.12.dylib");
  world.file("home/.local/share/uv/python/cpython-3.12.4-macos-aarch64-none/bin/python3");
  world.file("conda/bin/python3.14");
  world.link("conda/bin/python3", "python3.14");
  world.file("conda/lib/libpython3.14.dylib");
  const auto search = world.find({{"PATH", world.at("conda/bin")}, {"HOME", world.at("home")}});
  std::string versions;
  for (const auto& each : search.found) {
    versions += each.version + " ";
  }
  CHECK(versions == "3.14 3.13 3.12 3.11 3.10 ");
  CHECK(search.complaints.empty());
}

void virtual_environment_is_the_python_that_it_was_made_from()
{
  World world;
  world.file("base/bin/python3.13");
  world.link("base/bin/python3", "python3.13");
  const fs::path library = world.file("base/lib/libpython3.13.dylib");
  world.link("venv/bin/python3", world.root / "base/bin/python3");
  world.file("venv/pyvenv.cfg", "home = " + world.at("base/bin") + "\nversion = 3.13.0\n");
  world.file("copied/bin/python3");
  world.file("copied/pyvenv.cfg", "home = " + world.at("base/bin") + "\r\nversion_info = 3.13.0.final.0\n");
  for (const char* name : {"venv", "copied"}) {
    const auto search = world.find({{"VIRTUAL_ENV", world.at(name)}});
    CHECK(search.found.size() == 1);
    CHECK(search.found.at(0).library == library);
    CHECK(search.found.at(0).program == world.root / name / "bin/python3");
  }
}

void environment_of_a_model_decides_alone()
{
  World world;
  world.file("env/bin/python3");
  const fs::path library = world.file("env/lib/libpython3.11.dylib");
  world.file("other/bin/python3.12");
  world.link("other/bin/python3", "python3.12");
  world.file("other/lib/libpython3.12.dylib");
  for (const char* named : {"env/lib", "env/lib/", "env/lib/libpython3.11.dylib"}) {
    const auto search = world.find({{"MACBUILD_PYTHON_LIBRARY_PATH", world.at(named)}, {"PATH", world.at("other/bin")}});
    CHECK(search.found.size() == 1);
    CHECK(search.found.at(0).library == library);
    CHECK(search.found.at(0).version == "3.11");
    CHECK(search.found.at(0).program == world.root / "env/bin/python3");
  }
  const auto made = world.find({{"MACBUILD_PYTHON_LIBRARY_PATH", world.at("other2/lib")}, {"PATH", world.at("other/bin")}});
  CHECK(made.found.empty());
  CHECK(made.complaints.size() == 2);
}

void environment_without_a_library_is_that_of_its_python()
{
  World world;
  world.file("base/bin/python3.10");
  const fs::path library = world.file("base/lib/libpython3.10.dylib");
  world.link("env/bin/python3", world.root / "base/bin/python3.10");
  world.file("env/pyvenv.cfg", "home = " + world.at("base/bin") + "\nversion = 3.10.13\n");
  fs::create_directories(world.root / "env/lib/python3.10");
  const auto search = world.find({{"MACBUILD_PYTHON_LIBRARY_PATH", world.at("env/lib")}});
  CHECK(search.found.size() == 1);
  CHECK(search.found.at(0).library == library);
}

void what_cannot_be_used_is_told()
{
  World world;
  world.file("static/bin/python3.12");
  world.link("static/bin/python3", "python3.12");
  world.file("shims/python3");
  world.file("threads/bin/python3");
  world.file("threads/lib/libpython3.13t.dylib");
  world.file("threads/lib/libpython3.99999999999999999999.dylib");
  world.link("broken/python3", "nowhere");
  const auto search = world.find({{"PATH", world.at("static/bin") + ":" + world.at("shims") + ":" +
                                               world.at("threads/bin") + ":" + world.at("broken")}});
  CHECK(search.found.empty());
  CHECK(search.complaints.size() == 3);
  CHECK(search.complaints.at(0).find("Python 3.12 without a library") != std::string::npos);
}

}  // namespace

int main()
{
  framework_is_found_through_links_on_path();
  usual_places_come_last_and_newest_first();
  virtual_environment_is_the_python_that_it_was_made_from();
  environment_of_a_model_decides_alone();
  environment_without_a_library_is_that_of_its_python();
  what_cannot_be_used_is_told();
  return failures == 0 ? 0 : 1;
}
