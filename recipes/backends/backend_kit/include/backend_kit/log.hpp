// The server's log.
#pragma once

#include <source_location>
#include <string>

#include "backend_kit/triton.h"

namespace backend_kit {

// Returns whether a message of this level would be written; ask before composing an expensive message.
bool log_enabled(TRITONSERVER_LogLevel level) noexcept;

// Writes one message with the name of the source file and the line it comes from.
void log_message(TRITONSERVER_LogLevel level, const char* message,
                 const std::source_location& place = std::source_location::current()) noexcept;

inline void log_info(const std::string& message,
                     const std::source_location& place = std::source_location::current()) noexcept {
    log_message(TRITONSERVER_LOG_INFO, message.c_str(), place);
}

inline void log_warning(const std::string& message,
                        const std::source_location& place = std::source_location::current()) noexcept {
    log_message(TRITONSERVER_LOG_WARN, message.c_str(), place);
}

inline void log_error(const std::string& message,
                      const std::source_location& place = std::source_location::current()) noexcept {
    log_message(TRITONSERVER_LOG_ERROR, message.c_str(), place);
}

}  // namespace backend_kit
