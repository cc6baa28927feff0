#include "backend_kit/log.hpp"

#include <cstring>

namespace backend_kit {

bool log_enabled(TRITONSERVER_LogLevel level) noexcept { return TRITONSERVER_LogIsEnabled(level); }

void log_message(TRITONSERVER_LogLevel level, const char* message, const std::source_location& place) noexcept {
    if (!log_enabled(level)) {
        return;
    }
    const char* file = place.file_name();
    const char* slash = std::strrchr(file, '/');
    TRITONSERVER_Error* error =
        TRITONSERVER_LogMessage(level, slash == nullptr ? file : slash + 1, static_cast<int>(place.line()), message);
    if (error != nullptr) {
        TRITONSERVER_ErrorDelete(error);  // it cannot be logged
    }
}

}  // namespace backend_kit
