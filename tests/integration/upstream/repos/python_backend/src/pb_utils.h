// What both processes know of each other.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "message_queue.h"
namespace triton { namespace backend { namespace python {

using PythonBackendException = std::runtime_error;

// Lies in the region, and tells where the rest is.
struct IPCControl {
  bool uses_env = false;
  bool stub_health = false;
  bool stopping = false;
  MessageQueue stub_message_queue;    // to the stub
  MessageQueue parent_message_queue;  // from the stub
};

// Messages begin with one of these.
constexpr char kInitialize = 'I', kExecute = 'E', kFinalize = 'F', kDone = 'D', kFailed = 'X';

bool FileExists(const std::string& path);
// Nothing but letters, digits and what is common in paths may go through a shell.
std::string ForShell(const std::string& text);

}}}  // namespace triton::backend::python
