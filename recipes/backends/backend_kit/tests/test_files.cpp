#include "backend_kit/files.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backend_kit/error.hpp"
#include "testing.hpp"

using namespace backend_kit;
using namespace testing;
namespace fs = std::filesystem;

namespace {

// A repository with two models, and with links of all kinds.
struct Folder {
    fs::path root = fs::temp_directory_path() / ("backend_kit_files_" + std::to_string(getpid()));
    std::string version = (root / "repository/mine/1").string();

    Folder() {
        fs::create_directories(version);
        fs::create_directories(root / "repository/other/1");
        for (const char* file : {"mine/1/model.pt", "mine/shared.pt", "other/1/model.pt"}) {
            std::ofstream(root / "repository" / file) << "x";
        }
        fs::create_symlink("../shared.pt", version + "/inner.pt");
        fs::create_symlink("../../other/1/model.pt", version + "/outer.pt");
        fs::create_directory_symlink("../../other", version + "/folder");
        fs::create_directory_symlink(version, root / "repository/mine/2");
    }
    ~Folder() { fs::remove_all(root); }
};

std::string answer(const std::string& version, const std::string& name) {
    try {
        return named_file(version, name, "the_field").substr(version.size());
    } catch (const Error& error) {
        return std::to_string(error.code()) + " " + error.what();
    }
}

}  // namespace

TEST(files_inside_the_folder_of_the_model_are_found) {
    const Folder folder;
    for (const char* name : {"model.pt", "./model.pt", "../shared.pt", "../1/model.pt", "inner.pt"}) {
        CHECK_EQUAL(answer(folder.version, name), "/" + std::string(name));
    }
    CHECK_EQUAL(answer(folder.version + "/", "model.pt"), "model.pt");
    CHECK_EQUAL(answer((folder.root / "repository/mine/2").string(), "model.pt"), "/model.pt");
}

TEST(files_outside_the_folder_of_the_model_are_refused) {
    const Folder folder;
    const std::string inside = folder.version + "/model.pt";
    for (const std::string& name : {std::string("../../other/1/model.pt"), std::string("../../none"), inside,
                                    std::string("outer.pt"), std::string("folder/1/model.pt"), std::string("../.."),
                                    std::string("no/../../../other/1/model.pt")}) {
        CHECK_EQUAL(answer(folder.version, name),
                    "3 the_field is '" + name + "', which is outside the model's folder");
    }
}

TEST(files_that_are_not_there_are_not_found) {
    const Folder folder;
    CHECK_EQUAL(answer(folder.version, "none.pt"),
                "2 the_field is 'none.pt', but " + folder.version + "/none.pt does not exist");
}
