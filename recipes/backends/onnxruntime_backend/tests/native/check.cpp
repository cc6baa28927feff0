#include "check.hpp"

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace {

std::atomic<std::size_t> objects{0};
std::atomic<std::size_t> arrays{0};

void* allocate(std::size_t size, std::atomic<std::size_t>& count) noexcept {
    void* const block = std::malloc(size == 0 ? 1 : size);
    if (block != nullptr) ++count;
    return block;
}

void* allocate_or_throw(std::size_t size, std::atomic<std::size_t>& count) {
    void* const block = allocate(size, count);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}

void release(void* block, std::atomic<std::size_t>& count) noexcept {
    if (block != nullptr) --count;
    std::free(block);
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, objects); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, arrays); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, objects); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, arrays); }
void operator delete(void* block) noexcept { release(block, objects); }
void operator delete[](void* block) noexcept { release(block, arrays); }
void operator delete(void* block, std::size_t) noexcept { release(block, objects); }
void operator delete[](void* block, std::size_t) noexcept { release(block, arrays); }
void operator delete(void* block, const std::nothrow_t&) noexcept { release(block, objects); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { release(block, arrays); }

namespace check {
namespace {

std::uint32_t minor_version(const std::string& text) {
    std::uint32_t minor = 0;
    if (text.starts_with("1.")) std::from_chars(text.data() + 2, text.data() + text.size(), minor);
    return minor;
}

// Memory from operator new that was not deleted, in the whole process: ONNX Runtime uses ours.
struct Blocks {
    std::size_t objects;
    std::size_t arrays;
    bool operator==(const Blocks&) const = default;
};

Blocks live_blocks() { return {objects, arrays}; }

const void* later_table(const OrtApiBase* base) {
    return minor_version(base->GetVersionString()) < later_api_version ? nullptr : base->GetApi(later_api_version);
}

}  // namespace

const std::vector<Entry>& entries() {
#define CHECK_ENTRY(position, name, ...) {position, #name, api_version},
#define CHECK_LATER_ENTRY(position, name, ...) {position, #name, later_api_version},
    static const std::vector<Entry> all{ONNX_BACKEND_API(CHECK_ENTRY) ONNX_BACKEND_LATER_API(CHECK_LATER_ENTRY)};
    return all;
}

bool gives_back(const std::function<void()>& make, const std::function<void()>& release) {
    make();
    release();
    const Blocks before = live_blocks();
    make();
    const bool held = live_blocks() != before;
    release();
    return held && live_blocks() == before;
}

void Log::write(void* log, OrtLoggingLevel level, const char*, const char* id, const char*, const char* message) {
    auto& self = *static_cast<Log*>(log);
    const std::lock_guard lock(self.mutex_);
    self.records_.push_back({level, id, message});
}

std::vector<Record> Log::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(records_, {});
}

Check::Check(const OrtApiBase* base)
    : api(base->GetApi(api_version), later_table(base)),
      version(api.TensorTypeAndShape_HasShape == nullptr ? api_version : later_api_version) {}

void Check::succeeded(const char* name, OrtStatus* status) {
    if (status != nullptr) throw std::runtime_error(std::string(name) + ": " + api.GetErrorMessage(status));
}

Refusal Check::refused(const char* name, OrtStatus* status) {
    if (status == nullptr) throw std::runtime_error(std::string(name) + " should have failed");
    const Refusal refusal{api.GetErrorCode(status), api.GetErrorMessage(status)};
    api.ReleaseStatus(status);
    return refusal;
}

void Check::proved(const char* name, bool seen, const char* effect) {
    if (!called_.contains(name)) throw std::logic_error(std::string(name) + " was not called");
    if (!seen) throw std::runtime_error(std::string(name) + " does not show its effect: " + effect);
    if (!proven_.insert(name).second) throw std::logic_error(std::string(name) + " is proven twice");
    std::printf("%s: %s\n", name, effect);
}

void Check::finish() const {
    std::set<std::string> missing;
    for (const Entry& entry : entries()) {
        if (entry.since <= version && !proven_.contains(entry.name)) missing.insert(entry.name);
    }
    std::string text;
    for (const std::string& name : missing) text += " " + name;
    if (!missing.empty()) throw std::logic_error("not proven:" + text);
}

}  // namespace check
