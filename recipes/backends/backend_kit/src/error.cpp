#include "backend_kit/error.hpp"

#include <cstdio>
#include <memory>
#include <new>

#include "backend_kit/log.hpp"

namespace backend_kit {
namespace {

// Made in advance: an error about a lack of memory must not need any.
const Error out_of_memory(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");

struct Deleter {
    void operator()(TRITONSERVER_Error* error) const noexcept { TRITONSERVER_ErrorDelete(error); }
};
using ErrorHandle = std::unique_ptr<TRITONSERVER_Error, Deleter>;

}  // namespace

void check(TRITONSERVER_Error* error) {
    if (error != nullptr) {
        const ErrorHandle owned(error);
        throw Error(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
    }
}

void log_if_error(TRITONSERVER_Error* error, const char* doing) noexcept {
    if (error != nullptr) {
        const ErrorHandle owned(error);
        char message[1024];
        std::snprintf(message, sizeof(message), "failed to %s: %s", doing, TRITONSERVER_ErrorMessage(error));
        log_message(TRITONSERVER_LOG_ERROR, message);
    }
}

Error current_error() noexcept {
    try {
        throw;
    } catch (const Error& error) {
        return error;
    } catch (const std::bad_alloc&) {
        return out_of_memory;
    } catch (const std::exception& error) {
        try {
            return internal_error(error.what());
        } catch (...) {
            return out_of_memory;
        }
    } catch (...) {
        try {
            return internal_error("unknown exception");
        } catch (...) {
            return out_of_memory;
        }
    }
}

}  // namespace backend_kit
