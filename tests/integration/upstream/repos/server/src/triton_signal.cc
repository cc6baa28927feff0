#include "triton_signal.h"

#include <csignal>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>

#ifndef _WIN32
#define BOOST_STACKTRACE_USE_ADDR2LINE
#include <boost/stacktrace.hpp>
#endif
namespace triton { namespace server {
namespace {

bool signal_exiting_ = false;
std::mutex signal_exit_mu_;
std::condition_variable signal_exit_cv_;

void
SignalHandler(int signum)
{
  std::cerr << "Signal (" << signum << ") received." << std::endl;
  std::unique_lock<std::mutex> lock(signal_exit_mu_);
  if (signal_exiting_) {
    return;
  }
  signal_exiting_ = true;
  lock.unlock();
  signal_exit_cv_.notify_all();
}

void
ErrorSignalHandler(int signum)
{
  std::cerr << "Signal (" << signum << ") received." << std::endl;
  std::cerr << boost::stacktrace::stacktrace() << std::endl;
  signal(signum, SIG_DFL);
  raise(signum);
}

}  // namespace

void
RegisterSignalHandler()
{
  signal(SIGINT, SignalHandler);
  signal(SIGTERM, SignalHandler);
  signal(SIGSEGV, ErrorSignalHandler);
  signal(SIGABRT, ErrorSignalHandler);
}

void
WaitForExit()
{
  std::unique_lock<std::mutex> lock(signal_exit_mu_);
  signal_exit_cv_.wait(lock, [] { return signal_exiting_; });
}

}}  // namespace triton::server
