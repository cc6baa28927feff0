// Proves entries of the table by calling them: each proven entry has been called, and is proven only once.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api.hpp"

namespace check {

using namespace onnx_backend;

struct Entry {
    std::size_t position;
    const char* name;
    std::uint32_t since;  // the version of the API that brought it
};

const std::vector<Entry>& entries();

struct Record {
    OrtLoggingLevel level;
    std::string id;
    std::string message;
};

// The messages that one environment wrote to its log.
class Log {
public:
    static void write(void* log, OrtLoggingLevel level, const char* category, const char* id, const char* place,
                      const char* message);
    // Returns the messages since the last call.
    std::vector<Record> take();

private:
    std::mutex mutex_;
    std::vector<Record> records_;
};

struct Refusal {
    OrtErrorCode code = ORT_OK;
    std::string message;
};

class Check {
public:
    explicit Check(const OrtApiBase* base);

    // Announces the entry that is about to be called.
    void called(const char* name) { called_.insert(name); }
    // Throws if a call failed.
    void succeeded(const char* name, OrtStatus* status);
    // The error of a call; throws if there is none.
    Refusal refused(const char* name, OrtStatus* status);
    // Throws unless the effect was seen.
    void proved(const char* name, bool seen, const char* effect);
    // Throws unless all entries that this library has were proven.
    void finish() const;

    Api api;
    std::uint32_t version;  // of the API: the highest version that both the library and we support
    Log log;

private:
    std::set<std::string> called_;
    std::set<std::string> proven_;
};

// Returns whether memory is held after `make` and all of it given back by `release`. The first call may leave behind
// memory that all later calls share.
bool gives_back(const std::function<void()>& make, const std::function<void()>& release);

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Calls every entry in a library. `model` is made by tests/test_api.py; files are written beside it.
void call_all(Check& check, const std::string& model);
// The subset that needs a session.
void call_sessions(Check& check, const OrtEnv* env, const std::string& model);

}  // namespace check

#define CALL(entry, ...) (check.called(#entry), check.api.entry(__VA_ARGS__))
#define OK(entry, ...) check.succeeded(#entry, CALL(entry, __VA_ARGS__))
#define REFUSED(entry, ...) check.refused(#entry, CALL(entry, __VA_ARGS__))
#define PROVED(entry, seen, effect) check.proved(#entry, seen, effect)
