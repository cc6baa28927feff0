// Errors: one exception with Triton's code, and the two ways across the C boundary.
#pragma once

#include <stdexcept>
#include <string>

#include "backend_kit/triton.h"

namespace backend_kit {

// An error as Triton knows it. Copies share their text and cannot fail.
class Error : public std::runtime_error {
public:
    Error(TRITONSERVER_Error_Code code, const std::string& message) : std::runtime_error(message), code_(code) {}

    TRITONSERVER_Error_Code code() const noexcept { return code_; }

    // A new error object for the C API; the receiver deletes it.
    TRITONSERVER_Error* to_triton() const noexcept { return TRITONSERVER_ErrorNew(code_, what()); }

private:
    TRITONSERVER_Error_Code code_;
};

inline Error internal_error(const std::string& message) { return {TRITONSERVER_ERROR_INTERNAL, message}; }
inline Error invalid_argument(const std::string& message) { return {TRITONSERVER_ERROR_INVALID_ARG, message}; }
inline Error not_found(const std::string& message) { return {TRITONSERVER_ERROR_NOT_FOUND, message}; }
inline Error unavailable(const std::string& message) { return {TRITONSERVER_ERROR_UNAVAILABLE, message}; }
inline Error unsupported(const std::string& message) { return {TRITONSERVER_ERROR_UNSUPPORTED, message}; }

// Throws the error that a call of the C API returned, if any. The error object is deleted in every case.
void check(TRITONSERVER_Error* error);

// Logs the error that a call returned when there is no caller to return it to: `doing` completes "failed to ...".
void log_if_error(TRITONSERVER_Error* error, const char* doing) noexcept;

// The exception in flight as Error (call it inside a catch block). A lack of memory becomes UNAVAILABLE, any other
// exception INTERNAL with its own message.
Error current_error() noexcept;

// Runs a function that is called from C: an exception becomes the returned error object.
template <typename Function>
TRITONSERVER_Error* guarded(Function&& function) noexcept {
    try {
        function();
        return nullptr;
    } catch (...) {
        return current_error().to_triton();
    }
}

}  // namespace backend_kit
