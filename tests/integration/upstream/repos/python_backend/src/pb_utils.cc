#include "pb_utils.h"

#include <sys/stat.h>
namespace triton { namespace backend { namespace python {

bool
FileExists(const std::string& path)
{
  struct stat buffer;
  return stat(path.c_str(), &buffer) == 0;
}

std::string
ForShell(const std::string& text)
{
  std::string quoted = "'";
  for (const char each : text) {
    quoted += each == '\'' ? std::string("'\\''") : std::string(1, each);
  }
  return quoted + "'";
}

}}}  // namespace triton::backend::python
