#include "unpacked.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "archive.hpp"
#include "backend_kit/error.hpp"
#include "backend_kit/log.hpp"

namespace torch_backend {

// One package in its folder, with the number of objects that use it.
struct Content {
    struct File {
        std::string name;
        std::string path;
        std::uint32_t crc = 0;
        std::uint64_t size = 0;
    };

    std::string top;     // the folder that is removed in the end
    std::string folder;  // the same, or the folder in it that all members are in
    std::vector<File> files;
    std::size_t users = 0;
};

namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece = 1 << 20;
constexpr std::string_view model_folder = "data/aotinductor/model/";

backend_kit::Error not_written(const std::string& path, int code) {
    return backend_kit::unavailable("cannot unpack to " + path + ": " + std::system_category().message(code) +
                                    " (TMPDIR names the folder for temporary files)");
}

// Calls `use(bytes)` for the pieces of a file in turn, until it returns false. Returns whether it never did.
template <class Use>
bool each_piece(const Extent& data, Use&& use) {
    std::string buffer(static_cast<std::size_t>(std::min<std::uint64_t>(piece, data.size())), '\0');
    for (std::uint64_t at = 0; at < data.size(); at += buffer.size()) {
        const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), data.size() - at));
        data.read(at, buffer.data(), size);
        if (!use(std::string_view(buffer.data(), size))) return false;
    }
    return true;
}

void write(const Extent& data, const std::string& path) {
    std::error_code error;
    fs::create_directories(path.substr(0, path.rfind('/')), error);
    if (error) throw not_written(path, error.value());
    std::ofstream file(path, std::ios::binary);
    each_piece(data, [&](std::string_view bytes) {
        return static_cast<bool>(file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())));
    });
    file.close();
    if (!file) throw not_written(path, errno);
}

bool has_bytes(const std::string& path, const Extent& data) {
    std::ifstream file(path, std::ios::binary);
    std::string other(piece, '\0');
    const bool same = each_piece(data, [&](std::string_view bytes) {
        file.read(other.data(), static_cast<std::streamsize>(bytes.size()));
        return file && bytes == std::string_view(other.data(), bytes.size());
    });
    return same && file.good();
}

bool holds(const Content& content, const std::vector<Member>& members) {
    const auto all = [&](bool (*alike)(const Content::File&, const Member&)) {
        return std::equal(content.files.begin(), content.files.end(), members.begin(), members.end(), alike);
    };
    return all([](const Content::File& file, const Member& member) {
               return file.name == member.name && file.crc == member.crc && file.size == member.data.size();
           }) &&
           all([](const Content::File& file, const Member& member) { return has_bytes(file.path, member.data); });
}

std::string make_folder() {
    std::error_code error;
    const fs::path temporary = fs::temp_directory_path(error);
    if (error) throw not_written("the folder for temporary files", error.value());
    std::string folder = (temporary / "triton-pytorch-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw not_written(folder, errno);
    return folder;
}

void remove_folder(const std::string& folder) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) backend_kit::log_warning("cannot remove " + folder + ": " + error.message());
}

bool is_loaded(const Content::File& file) {
    if (!is_library(file.name)) return false;
    void* const library = dlopen(file.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
    dlclose(library);
    return true;
}

// The folder in the archive that the model is in, "" or such as "network/".
std::string prefix_of(const std::string& path, const std::vector<Member>& members) {
    for (const Member& member : members) {
        const auto at = member.name.find(model_folder);
        const bool begins = at == 0 || (at != std::string::npos && member.name.find('/') == at - 1);
        if (begins && is_library(member.name)) return member.name.substr(0, at);
    }
    throw backend_kit::invalid_argument(path + " has no compiled library of a model called \"model\"; make it with " +
                                        "torch._inductor.aoti_compile_and_package");
}

Content unpack(const std::string& path, const std::vector<Member>& members) {
    const std::string prefix = prefix_of(path, members);
    Content content;
    content.top = make_folder();
    content.folder = content.top + "/" + prefix;
    try {
        for (const Member& member : members) {
            content.files.push_back({member.name, content.top + "/" + member.name, member.crc, member.data.size()});
            write(member.data, content.files.back().path);
        }
    } catch (...) {
        remove_folder(content.top);
        throw;
    }
    return content;
}

}  // namespace

// All packages of the process that are in use or still in memory.
class Contents {
public:
    Contents() = default;
    Contents(const Contents&) = delete;
    Contents& operator=(const Contents&) = delete;
    ~Contents() {
        for (const Content& each : all_) remove_folder(each.top);
    }

    Content* acquire(const std::string& path) {
        const std::vector<Member> members = check_archive(path);
        const std::lock_guard lock(mutex_);
        auto found = std::find_if(all_.begin(), all_.end(), [&](const Content& each) { return holds(each, members); });
        if (found == all_.end()) found = all_.insert(all_.end(), unpack(path, members));
        ++found->users;
        return &*found;
    }

    void release(const Content* content) {
        const std::lock_guard lock(mutex_);
        const auto found =
            std::find_if(all_.begin(), all_.end(), [&](const Content& each) { return &each == content; });
        if (--found->users > 0 || std::any_of(found->files.begin(), found->files.end(), is_loaded)) return;
        remove_folder(found->top);
        all_.erase(found);
    }

    // Objects that use it may outlive the end of the process's main function.
    static std::shared_ptr<Contents> of_process() {
        static const auto contents = std::make_shared<Contents>();
        return contents;
    }

private:
    std::mutex mutex_;
    std::list<Content> all_;
};

Unpacked::Unpacked(const std::string& path)
    : contents_(Contents::of_process()), content_(contents_->acquire(path)) {}

Unpacked::~Unpacked() {
    contents_->release(content_);
}

const std::string& Unpacked::folder() const {
    return content_->folder;
}

backend_kit::Json Unpacked::metadata() const {
    for (const Content::File& file : content_->files) {
        const bool of_model = file.path.starts_with(content_->folder + std::string(model_folder));
        if (!of_model || !file.name.ends_with("wrapper_metadata.json")) continue;
        std::string text;
        each_piece(Extent(file.path), [&](std::string_view bytes) {
            text += bytes;
            return true;
        });
        return backend_kit::Json::parse(text);
    }
    return backend_kit::Json(backend_kit::JsonObject{});
}

bool Unpacked::libraries_contain(std::string_view text) const {
    return std::any_of(content_->files.begin(), content_->files.end(), [&](const Content::File& file) {
        std::string end;  // of the last piece: the text may begin in it
        return is_library(file.name) && !each_piece(Extent(file.path), [&](std::string_view bytes) {
            end += bytes;
            if (end.find(text) != std::string::npos) return false;
            end.erase(0, end.size() - std::min(end.size(), text.size()));
            return true;
        });
    });
}

}  // namespace torch_backend
