// Libraries by name, and folders of an installation.
#include "macbuild/compat/libraries.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "check.hpp"
#include "macbuild/compat/forced.h"

namespace compat = macbuild::compat;

namespace {

using Names = std::vector<std::string>;

// A folder that exists only for this process.
std::string make_folder() {
    std::string folder = "/tmp/macbuild-compat-XXXXXX";
    CHECK(mkdtemp(folder.data()) != nullptr);
    char real[4096];
    CHECK(realpath(folder.c_str(), real) != nullptr);
    return real;
}

void write_file(const std::string& path, const std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    CHECK(file != nullptr);
    CHECK(std::fwrite(text.data(), 1, text.size(), file) == text.size());
    CHECK(std::fclose(file) == 0);
}

std::string content(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "r");
    CHECK(file != nullptr);
    std::string text;
    for (int letter = 0; (letter = std::fgetc(file)) != EOF;) {
        text += static_cast<char>(letter);
    }
    CHECK(std::fclose(file) == 0);
    return text;
}

void names_are_what_triton_asks_for() {
    CHECK_EQUAL(compat::library_name(compat::Plugin::backend, "python"), "libtriton_python.so");
    CHECK_EQUAL(compat::library_name(compat::Plugin::cache, "local"), "libtritoncache_local.so");
    CHECK_EQUAL(compat::library_name(compat::Plugin::repository_agent, "checksum"), "libtritonrepoagent_checksum.so");
}

void each_suffix_has_the_other() {
    CHECK_EQUAL(compat::library_names("libtriton_x.so"), (Names{"libtriton_x.so", "libtriton_x.dylib"}));
    CHECK_EQUAL(compat::library_names("/a/x.dylib"), (Names{"/a/x.dylib", "/a/x.so"}));
    CHECK_EQUAL(compat::library_names("libx.so.1"), (Names{"libx.so.1"}));
    CHECK_EQUAL(compat::library_names("model.py"), (Names{"model.py"}));
    CHECK_EQUAL(compat::library_names(".so"), (Names{".so"}));
    CHECK_EQUAL(compat::library_names(""), (Names{""}));
}

void the_nearer_folder_counts_and_then_the_name_as_asked_for() {
    const std::string near = make_folder();
    const std::string far = make_folder();
    const Names folders{near, far + "/"};
    Names tried;
    CHECK(!compat::find_library(folders, "libtriton_x.so", &tried));
    CHECK_EQUAL(tried, (Names{near + "/libtriton_x.so", near + "/libtriton_x.dylib", far + "/libtriton_x.so",
                              far + "/libtriton_x.dylib"}));
    write_file(far + "/libtriton_x.so", "");
    CHECK_EQUAL(*compat::find_library(folders, "libtriton_x.so"), far + "/libtriton_x.so");
    write_file(near + "/libtriton_x.dylib", "");
    CHECK_EQUAL(*compat::find_library(folders, "libtriton_x.so"), near + "/libtriton_x.dylib");
    CHECK(mkdir((near + "/libtriton_x.so").c_str(), 0700) == 0);  // A folder is not a library.
    CHECK_EQUAL(*compat::find_library(folders, "libtriton_x.so"), near + "/libtriton_x.dylib");
    CHECK(rmdir((near + "/libtriton_x.so").c_str()) == 0);
    write_file(near + "/libtriton_x.so", "");
    CHECK_EQUAL(*compat::find_library(folders, "libtriton_x.so"), near + "/libtriton_x.so");
    // The call that an edit puts around the path that Triton makes.
    CHECK_EQUAL(std::string(macbuild_compat_library_file((near + "/libtriton_x.so").c_str())), near + "/libtriton_x.so");
    CHECK(unlink((near + "/libtriton_x.so").c_str()) == 0);
    const char* kept = macbuild_compat_library_file((near + "/libtriton_x.so").c_str());
    CHECK_EQUAL(std::string(kept), near + "/libtriton_x.dylib");
    CHECK(macbuild_compat_library_file((near + "/libtriton_x.so").c_str()) == kept);
    CHECK_EQUAL(std::string(macbuild_compat_library_file("/nowhere/x.so")), "/nowhere/x.so");
}

void a_library_loads_under_either_name() {
    const std::string folder = make_folder();
    const std::string program = compat::executable_path();
    const std::string plugin = program.substr(0, program.rfind('/')) + "/libcompat_plugin.so";
    write_file(folder + "/libtriton_probe.dylib", content(plugin));
    std::string error = "old";
    void* library = compat::open_library(folder + "/libtriton_probe.so", error);
    CHECK(library != nullptr);
    CHECK_EQUAL(error, "");
    auto* function = reinterpret_cast<int (*)()>(dlsym(library, "answer"));
    CHECK(function != nullptr && function() == 42);
    CHECK(dlclose(library) == 0);
}

void the_reason_of_dlopen_is_told() {
    const std::string folder = make_folder();
    const std::string path = folder + "/libtriton_none.so";
    std::string error;
    CHECK(compat::open_library(path, error) == nullptr);
    // Both names, each with the system's own message, which names the path again.
    CHECK(error.starts_with(path + ": "));
    CHECK(error.find(path, path.size()) != std::string::npos);
    CHECK(error.find("; " + folder + "/libtriton_none.dylib: ") != std::string::npos);
    write_file(path, "no library");
    write_file(folder + "/libtriton_none.dylib", "no library");
    CHECK(compat::open_library(path, error) == nullptr);
    CHECK(error.find("dylib") == std::string::npos);
}

void the_program_knows_where_it_is() {
    const std::string program = compat::executable_path();
    CHECK(program.starts_with("/"));
    CHECK(program.ends_with("/libraries_test"));
    CHECK(access(program.c_str(), X_OK) == 0);
}

// Plays an installed program: prints the resulting default for backends.
void folders_are_those_of_the_installation() {
    const std::string prefix = make_folder();
    CHECK(mkdir((prefix + "/bin").c_str(), 0755) == 0);
    const std::string program = prefix + "/bin/tritonserver";
    write_file(program, content(compat::executable_path()));
    CHECK(chmod(program.c_str(), 0755) == 0);
    // Through a link elsewhere, as package managers make them, and with an unrelated working folder.
    const std::string link = make_folder() + "/server";
    CHECK(symlink(program.c_str(), link.c_str()) == 0);
    const auto ask = [&] {
        std::FILE* child = popen(("cd / && " + link + " where").c_str(), "r");
        CHECK(child != nullptr);
        char line[4096] = "";
        CHECK(std::fgets(line, sizeof(line), child) != nullptr);
        CHECK(pclose(child) == 0);
        return std::string(line);
    };
    CHECK_EQUAL(ask(), prefix + "/backends\n");
    CHECK(mkdir((prefix + "/backends").c_str(), 0755) == 0);
    CHECK_EQUAL(ask(), prefix + "/backends\n");
}

void the_first_folder_that_is_there_counts() {
    const std::string folder = make_folder();
    const auto* here = reinterpret_cast<const void*>(&the_first_folder_that_is_there_counts);
    const std::string program = compat::executable_path();
    const std::string prefix = program.substr(0, program.rfind('/', program.rfind('/') - 1));
    // Nothing exists: the place beside the image is named. Only the fixed place exists: it is used.
    CHECK_EQUAL(compat::installed_folder("no-such", "/no/such", here), prefix + "/no-such");
    CHECK_EQUAL(compat::installed_folder("no-such", folder, here), folder);
    // An address outside all images: the program's own place.
    CHECK_EQUAL(compat::installed_folder("no-such", "/no/such", nullptr), prefix + "/no-such");
    // Another library's place, by an address in it.
    void* function = dlsym(RTLD_DEFAULT, "getpid");
    const std::string system = compat::installed_folder("no-such", "/no/such", function);
    CHECK(!system.starts_with(prefix));
    CHECK_EQUAL(std::string(macbuild_compat_directory("/elsewhere/backends")), "/elsewhere/backends");
}

}  // namespace

int main(int count, char**) {
    if (count > 1) {
        std::puts(macbuild_compat_directory("/opt/tritonserver/backends"));
        return 0;
    }
    names_are_what_triton_asks_for();
    each_suffix_has_the_other();
    the_nearer_folder_counts_and_then_the_name_as_asked_for();
    a_library_loads_under_either_name();
    the_reason_of_dlopen_is_told();
    the_program_knows_where_it_is();
    folders_are_those_of_the_installation();
    the_first_folder_that_is_there_counts();
}
