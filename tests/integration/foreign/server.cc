// A server that handles signals as if a handler were an ordinary function.
#include <csignal>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <string>

#define BOOST_STACKTRACE_USE_ADDR2LINE
#include <boost/stacktrace.hpp>

#include "common.h"
#include "core.h"

namespace {

std::mutex mu;
std::condition_variable cv;
bool exiting = false;

void Exit(int signum)
{
  std::cout << "signal " << signum << std::endl;
  std::lock_guard<std::mutex> lock(mu);
  exiting = true;
  cv.notify_all();
}

void Crash(int signum)
{
  std::cerr << "handler of the server: " << signum << std::endl << boost::stacktrace::stacktrace() << std::endl;
  signal(signum, SIG_DFL);
  raise(signum);
}

int Serve()
{
  signal(SIGTERM, Exit);
  std::unique_lock<std::mutex> lock(mu);
  std::cout << "ready" << std::endl;
  // The handler needs the lock that is held here.
  raise(SIGTERM);
  cv.wait(lock, [] { return exiting; });
  std::cout << "drained" << std::endl;
  return 0;
}

volatile int* volatile nowhere = nullptr;

int Fault()
{
  signal(SIGSEGV, Crash);
  *nowhere = 1;
  return 0;
}

}  // namespace

int main(int argc, char** argv)
{
  const std::string part = argc > 1 ? argv[1] : "";
  if (part == "serve")
    return Serve();
  if (part == "fault")
    return Fault();
  if (part == "trace")
    std::cout << boost::stacktrace::stacktrace() << std::endl;
  if (part == "pipe")
    std::cout << TellsOfBrokenConnection() << " " << PlainSignal(SIGUSR1) << std::endl;
  if (part == "nodes")
    std::cout << FOREIGN_Nodes() << std::endl;
  if (part == "load")
    std::cout << FOREIGN_Load(argv[2]) << std::endl;
#ifdef MACBUILD_COMPAT_FORCED_H  // As in an edit.
  if (part == "folder")
    std::cout << macbuild_compat_directory("/opt/tritonserver/backends") << std::endl;
#endif
  return 0;
}
