#include "triton/common/logging.h"

#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <iomanip>
#include <iostream>
namespace triton { namespace common {

LogMessage::LogMessage(char level, const char* file, int line)
{
  struct timeval now;
  gettimeofday(&now, nullptr);
  struct tm utc;
  gmtime_r(&now.tv_sec, &utc);
  const char* name = strrchr(file, '/');
  stream_ << level << std::setfill('0') << std::setw(2) << (utc.tm_mon + 1) << std::setw(2) << utc.tm_mday << ' '
          << std::setw(2) << utc.tm_hour << ':' << std::setw(2) << utc.tm_min << ':' << std::setw(2) << utc.tm_sec << '.'
          << std::setw(6) << now.tv_usec << ' ' << getpid() << ' ' << (name ? name + 1 : file) << ':' << line << "] ";
}

LogMessage::~LogMessage()
{
  stream_ << '\n';
  std::cerr << stream_.str() << std::flush;
}

}}  // namespace triton::common
