// Signals: broken connections, orderly ends, crashes.
#pragma once

extern "C" {

using macbuild_compat_handler = void (*)(int);

// What `signal` becomes in foreign code (forced.h). SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to
// handle_on_thread. SIGSEGV (with SIGBUS) and SIGABRT go to trace_crash, and the handler given is not called: what it
// would do there is seldom safe. SIG_DFL, SIG_IGN and all other signals are the system's matter. Returns what was set
// before, or SIG_ERR with errno.
macbuild_compat_handler macbuild_compat_signal(int signal, macbuild_compat_handler handler) noexcept;

// Refers to the constructor that calls ignore_sigpipe() before main; the linker is asked for it by -u.
void macbuild_compat_start() noexcept;
}

namespace macbuild::compat {

// Makes a write to a closed connection an error (EPIPE), not the end of the process. An action that the program has
// set is left alone. Programs that it executes inherit this, as they do from every server.
void ignore_sigpipe() noexcept;

// Calls a handler for each arrival of a signal on a thread of its own, where it may lock, allocate and log. Several
// arrivals may become one call, as with signals. A child made by fork dies of the signal until it executes a program.
// False with errno if the signal tells of a fault or is none, or if no pipe or thread is available.
bool handle_on_thread(int signal, macbuild_compat_handler handler) noexcept;

// Writes a stack trace to stderr when the signal arrives (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT) and lets
// the process die of it, so that the exit status and the system's crash report are what they are without this. Nothing
// in it allocates or locks. The calling thread gets a stack for it, so that the main thread's overflow is told, too.
bool trace_crash(int signal) noexcept;

// A stack of its own for the signals of the calling thread, as long as this lives. Only then can trace_crash tell that
// the thread's stack has overflowed.
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
