// Signals: broken connections, orderly ends, crashes.
#pragma once

extern "C" {

using macbuild_compat_handler = void (*)(int);

// Replaces `signal` in foreign code (forced.h). SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to
// handle_on_thread. SIGSEGV (with SIGBUS) and SIGABRT go to trace_crash, and the given handler is not called: its code
// is seldom safe there. SIG_DFL, SIG_IGN and all other signals are passed to the system. Returns the previous handler,
// or SIG_ERR with errno.
macbuild_compat_handler macbuild_compat_signal(int signal, macbuild_compat_handler handler) noexcept;

// Refers to the constructor that calls ignore_sigpipe() before main; the linker option -u requests it.
void macbuild_compat_start() noexcept;
}

namespace macbuild::compat {

// Makes a write to a closed connection an error (EPIPE), not the end of the process. An action that the program has
// set stays. Programs that it executes inherit this, as they do from every server.
void ignore_sigpipe() noexcept;

// Calls a handler for each arrival of a signal on its own thread, where it may lock, allocate and log. Several
// arrivals may become one call, as with signals. A child made by fork dies of the signal until it executes a program.
// Returns false with errno if the signal reports a fault or does not exist, or if no pipe or thread is available.
bool handle_on_thread(int signal, macbuild_compat_handler handler) noexcept;

// Writes a stack trace to stderr when the signal arrives (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT) and lets
// the process die of it, so that the exit status and the system's crash report stay the same. It does not allocate or
// lock. The calling thread gets a stack for it, so that an overflow of the main thread is reported, too.
bool trace_crash(int signal) noexcept;

// A separate stack for the signals of the calling thread, for the lifetime of this object. Without it trace_crash
// cannot report that the thread's stack has overflowed.
class AlternateStack {
public:
    AlternateStack() noexcept;
    ~AlternateStack();
    AlternateStack(const AlternateStack&) = delete;
    AlternateStack& operator=(const AlternateStack&) = delete;

private:
    void* memory_;
};

}  // namespace macbuild::compat
