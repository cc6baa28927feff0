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

std::string places(const Folder& folder, const std::string& name, bool written, const std::string& allowed = "") {
    const BackendConfig backend{allowed.empty() ? StringMap{} : StringMap{{"allowed-folders", allowed}}};
    try {
        const Places places(folder.version, backend);
        return written ? places.writable(name, "the_field") : places.existing(name, "the_field");
    } catch (const Error& error) {
        return std::to_string(error.code()) + " " + error.what();
    }
}

std::string refusal(const Folder& folder, const std::string& config) {
    try {
        check_files(ModelConfig::parse(config), folder.version);
    } catch (const Error& error) {
        return std::to_string(error.code()) + " " + error.what();
    }
    return "none";
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

TEST(files_of_places_are_beside_the_configuration_or_in_the_version_folder) {
    const Folder folder;
    CHECK_EQUAL(places(folder, "model.pt", false), folder.version + "/model.pt");
    CHECK_EQUAL(places(folder, "shared.pt", false), (folder.root / "repository/mine/shared.pt").string());
    CHECK_EQUAL(places(folder, "outer.pt", false), "3 the_field is 'outer.pt', which is outside the model's folder");
    CHECK_EQUAL(places(folder, "none.pt", false),
                "2 the_field is 'none.pt', but " + folder.version + "/none.pt does not exist");
}

TEST(files_that_are_written_may_be_new_but_not_behind_a_link_to_elsewhere) {
    const Folder folder;
    fs::create_symlink("../../other/new.pt", folder.version + "/dangling.pt");
    CHECK_EQUAL(places(folder, "new.pt", true), folder.version + "/new.pt");
    CHECK_EQUAL(places(folder, "../new.pt", true), folder.version + "/../new.pt");
    CHECK_EQUAL(places(folder, "inner.pt", true), folder.version + "/inner.pt");
    for (const char* name : {"outer.pt", "folder/new.pt", "../../new.pt"}) {
        CHECK_EQUAL(places(folder, name, true),
                    "3 the_field is '" + std::string(name) + "', which is outside the model's folder");
    }
    CHECK(places(folder, "dangling.pt", true).starts_with("2 the_field is 'dangling.pt', but "));
    CHECK(places(folder, "none/new.pt", true).starts_with("2 the_field is 'none/new.pt', but "));
}

TEST(files_by_absolute_paths_are_in_the_allowed_folders) {
    const Folder folder;
    const std::string other = (folder.root / "repository/other").string();
    const std::string outside = "', which is outside the model's folder and the folders of the backend's setting "
                                "allowed-folders";
    CHECK_EQUAL(places(folder, other + "/1/model.pt", false), "3 the_field is '" + other + "/1/model.pt" + outside);
    CHECK_EQUAL(places(folder, other + "/1/model.pt", false, "/nowhere:" + other + ":"), other + "/1/model.pt");
    CHECK_EQUAL(places(folder, other + "/new", true, other), other + "/new");
    for (const std::string& name : {other + "/../mine/new", folder.version + "/new"}) {
        CHECK_EQUAL(places(folder, name, true, other), "3 the_field is '" + name + outside);
    }
    CHECK_EQUAL(places(folder, "../../other/1/model.pt", false, other),
                "3 the_field is '../../other/1/model.pt', which is outside the model's folder");
    CHECK_EQUAL(places(folder, "model.pt", false, "here"), "3 setting allowed-folders: 'here' is not an absolute path");
}

TEST(files_that_the_server_reads_itself_are_checked) {
    const Folder folder;
    const auto outside = [](const std::string& field, const std::string& name) {
        return "3 " + field + " is '" + name + "', which is outside the model's folder";
    };
    fs::create_directories(folder.root / "repository/mine/warmup");
    fs::create_symlink("../../other/1/model.pt", folder.root / "repository/mine/warmup/link");
    CHECK_EQUAL(refusal(folder, R"({"default_model_filename": "outer.pt"})"), outside("default_model_filename", "outer.pt"));
    CHECK_EQUAL(refusal(folder, R"({"output": [{"label_filename": "../other/1/model.pt"}]})"),
                outside("label_filename", "../other/1/model.pt"));
    CHECK_EQUAL(refusal(folder, R"({"output": [{"label_filename": "/etc/passwd"}]})"),
                outside("label_filename", "/etc/passwd"));
    CHECK_EQUAL(refusal(folder, R"({"sequence_batching": {"state": [{"data_type": "TYPE_INT8",
                                    "initial_state": [{"data_file": "../../x"}]}]}})"),
                outside("data_file", "../../x"));
    CHECK_EQUAL(refusal(folder, R"({"model_warmup": [{"inputs": {"x": {"input_data_file": "link"}}}]})"),
                outside("input_data_file", "link"));
    CHECK_EQUAL(refusal(folder, R"({"default_model_filename": "none.pt", "output": [{"label_filename": "shared.pt"}],
                                    "model_warmup": [{"inputs": {"x": {"zero_data": true}}}, {}]})"),
                "none");
}
