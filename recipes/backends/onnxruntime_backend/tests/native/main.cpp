// onnx_api_check list                     every entry of the table: position, name, version of the API
// onnx_api_check call LIBRARY MODEL       calls every entry in a library
// onnx_api_check search MODULE            lets a library look for ONNX Runtime
// onnx_api_check names FOLDER linux|macos the files of a folder in the order of trying
// onnx_api_check rpaths FILE              the rpaths of a thin Mach-O file
// onnx_api_check spoil FILE               reads the rpaths of the file cut short and falsified everywhere
// onnx_api_check locations FILE           where an ONNX model says that its external data is
// onnx_api_check damage FILE              reads the locations of the file cut short and with each byte changed
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "check.hpp"
#include "external.hpp"
#include "library.hpp"

namespace {

using namespace check;

void* load(const std::string& path) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    return handle;
}

template <typename Function>
Function* function(const std::string& path, const char* name) {
    void* const found = dlsym(load(path), name);
    if (found == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<Function*>(found);
}

int list() {
    for (const Entry& entry : entries()) std::printf("%zu %s %u\n", entry.position, entry.name, entry.since);
    return 0;
}

int call(const std::string& path, const std::string& model) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
    Check check(function<const OrtApiBase*()>(path, "OrtGetApiBase")());
    call_all(check, model);
    check.finish();
    return 0;
}

int names(const std::string& folder, std::string_view system) {
    std::string reason;
    for (const std::string& name : library_names(folder, system == "macos" ? macos_naming : linux_naming, reason)) {
        std::printf("%s\n", name.c_str());
    }
    if (!reason.empty()) std::printf("unreadable: %s\n", reason.c_str());
    return 0;
}

std::vector<std::byte> bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> text(std::istreambuf_iterator<char>(file), {});
    const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
    return {bytes, bytes + text.size()};
}

int rpaths(const std::string& path) {
    for (const std::string& rpath : macho_rpaths(bytes_of(path))) std::printf("%s\n", rpath.c_str());
    return 0;
}

// Bytes that end right before an inaccessible page.
class Edge {
public:
    explicit Edge(std::size_t size) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
        length_ = (size / page_ + 2) * page_;
        memory_ =
            static_cast<std::byte*>(mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(memory_ + length_ - page_, page_, PROT_NONE);
    }
    ~Edge() { munmap(memory_, length_); }
    Edge(const Edge&) = delete;
    Edge& operator=(const Edge&) = delete;

    std::span<const std::byte> put(std::span<const std::byte> bytes) {
        std::byte* const start = memory_ + length_ - page_ - bytes.size();
        std::memcpy(start, bytes.data(), bytes.size());
        return {start, bytes.size()};
    }

private:
    std::size_t page_;
    std::size_t length_ = 0;
    std::byte* memory_ = nullptr;
};

int spoil(const std::string& path) {
    constexpr std::uint32_t values[] = {0, 1, 7, 8, 11, 12, 13, 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff};
    std::vector<std::byte> image = bytes_of(path);
    std::uint32_t commands = 0;
    std::memcpy(&commands, image.data() + 20, sizeof(commands));
    image.resize(32 + commands);
    Edge edge(image.size());
    std::size_t most = 0;
    std::size_t trials = 0;
    const auto read = [&](std::span<const std::byte> bytes) {
        most = std::max(most, macho_rpaths(edge.put(bytes)).size());
        ++trials;
    };
    for (std::size_t size = 0; size <= image.size(); ++size) read(std::span(image).first(size));
    for (std::size_t at = 0; at + 4 <= image.size(); at += 4) {
        for (const std::uint32_t value : values) {
            std::vector<std::byte> other = image;
            std::memcpy(other.data() + at, &value, sizeof(value));
            read(other);
        }
    }
    std::printf("%zu trials, at most %zu rpaths\n", trials, most);
    return 0;
}

int locations(const std::string& path) {
    for (const std::string& location : external_locations(path)) std::printf("%s\n", location.c_str());
    return 0;
}

int damage(const std::string& path) {
    const std::vector<std::byte> bytes = bytes_of(path);
    const std::string whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::size_t trials = 0;
    std::size_t found = 0;
    const auto read = [&](const std::string& content) {
        std::ofstream(path, std::ios::binary) << content;
        found += external_locations(path).empty() ? 0 : 1;
        ++trials;
    };
    for (std::size_t size = 0; size <= whole.size(); ++size) read(whole.substr(0, size));
    for (std::size_t at = 0; at < whole.size(); ++at) {
        for (const int value : {0x00, 0x01, 0x0b, 0x1a, 0x3a, 0x6a, 0x7f, 0x80, 0xff}) {
            std::string other = whole;
            other[at] = static_cast<char>(value);
            read(other);
        }
    }
    std::printf("%zu %zu\n", trials, found);
    return 0;
}

int run(const std::vector<std::string>& arguments) {
    const std::string mode = arguments.empty() ? "" : arguments[0];
    if (mode == "list" && arguments.size() == 1) return list();
    if (mode == "call" && arguments.size() == 3) return call(arguments[1], arguments[2]);
    if (mode == "search" && arguments.size() == 2) return function<int()>(arguments[1], "search")();
    if (mode == "names" && arguments.size() == 3) return names(arguments[1], arguments[2]);
    if (mode == "rpaths" && arguments.size() == 2) return rpaths(arguments[1]);
    if (mode == "spoil" && arguments.size() == 2) return spoil(arguments[1]);
    if (mode == "locations" && arguments.size() == 2) return locations(arguments[1]);
    if (mode == "damage" && arguments.size() == 2) return damage(arguments[1]);
    throw std::runtime_error(
        "list | call LIBRARY MODEL | search MODULE | names FOLDER SYSTEM | rpaths FILE | spoil FILE | "
        "locations FILE | damage FILE");
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run({arguments + 1, arguments + count});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
