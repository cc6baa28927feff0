#pragma once
#include <sstream>
namespace triton { namespace common {

// Collects one line, and writes it when it goes.
class LogMessage {
 public:
  LogMessage(char level, const char* file, int line);
  ~LogMessage();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}}  // namespace triton::common
#define LOG_INFO triton::common::LogMessage('I', __FILE__, __LINE__).stream()
#define LOG_WARNING triton::common::LogMessage('W', __FILE__, __LINE__).stream()
#define LOG_ERROR triton::common::LogMessage('E', __FILE__, __LINE__).stream()
