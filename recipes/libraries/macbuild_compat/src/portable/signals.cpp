#include "macbuild/compat/signals.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace macbuild::compat {
namespace {

constexpr int most_signals = 32;

// The function called on the thread for each signal, or the one that foreign code believes to have set.
std::atomic<macbuild_compat_handler> handlers[most_signals];
// The process that has the thread: a child made by fork has the pipe, but not the thread.
std::atomic<pid_t> owner{0};
std::atomic<int> pipe_in{-1};
pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

bool deferred(int signal) noexcept {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT || signal == SIGUSR1
           || signal == SIGUSR2;
}

bool crash(int signal) noexcept { return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS; }

// A signal that comes again as soon as the handler returns, so it cannot be handled on another thread.
bool fault(int signal) noexcept {
    return crash(signal) || signal == SIGILL || signal == SIGFPE || signal == SIGTRAP;
}

// Runs in a signal handler.
void on_signal(int signal) {
    const int error = errno;
    if (getpid() == owner.load()) {
        const auto number = static_cast<unsigned char>(signal);
        // A full pipe has enough calls waiting.
        [[maybe_unused]] const ssize_t written = write(pipe_in.load(), &number, 1);
    } else {
        struct sigaction action {};
        action.sa_handler = SIG_DFL;
        sigaction(signal, &action, nullptr);
        raise(signal);  // It is blocked here, and arrives at the end of this handler.
    }
    errno = error;
}

void* call_handlers(void* argument) {
    const int pipe_out = static_cast<int>(reinterpret_cast<intptr_t>(argument));
    unsigned char number = 0;
    for (;;) {
        const ssize_t count = read(pipe_out, &number, 1);
        if (count == 1) {
            const macbuild_compat_handler handler = handlers[number].load();
            if (handler != nullptr) {
                handler(number);
            }
        } else if (count == 0 || errno != EINTR) {
            return nullptr;
        }
    }
}

// Starts the thread, which receives no signals itself. Returns an error number.
int start_thread(int pipe_out) noexcept {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int error =
        pthread_create(&thread, nullptr, call_handlers, reinterpret_cast<void*>(static_cast<intptr_t>(pipe_out)));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

bool start_here() noexcept {
    if (owner.load() == getpid()) {
        return true;
    }
    int ends[2];
    if (pipe(ends) != 0) {
        return false;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const int error = start_thread(ends[0]);
    if (error != 0) {
        close(ends[0]);
        close(ends[1]);
        errno = error;
        return false;
    }
    pipe_in = ends[1];
    owner = getpid();
    return true;
}

bool start() noexcept {
    pthread_mutex_lock(&starting);
    const bool started = start_here();
    pthread_mutex_unlock(&starting);
    return started;
}

// Sets the system's action; returns the previous one, or SIG_ERR.
macbuild_compat_handler set_plain(int signal, macbuild_compat_handler handler) noexcept {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(signal, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

// The same for a signal that may have an action of ours. SIGBUS goes with SIGSEGV: Darwin sends it where Linux sends
// SIGSEGV, for an access that the protection of a page forbids.
bool set_crash(int signal, macbuild_compat_handler handler) noexcept {
    const bool plain = handler == SIG_DFL || handler == SIG_IGN;
    const auto set = [&](int each) { return plain ? set_plain(each, handler) != SIG_ERR : trace_crash(each); };
    return set(signal) && (signal != SIGSEGV || set(SIGBUS));
}

}  // namespace

bool handle_on_thread(int signal, macbuild_compat_handler handler) noexcept {
    if (signal <= 0 || signal >= most_signals || fault(signal)) {
        errno = EINVAL;
        return false;
    }
    if (!start()) {
        return false;
    }
    const macbuild_compat_handler before = handlers[signal].exchange(handler);
    if (set_plain(signal, on_signal) == SIG_ERR) {
        handlers[signal] = before;
        return false;
    }
    return true;
}

}  // namespace macbuild::compat

extern "C" macbuild_compat_handler macbuild_compat_signal(int signal, macbuild_compat_handler handler) noexcept {
    using namespace macbuild::compat;
    if (!deferred(signal) && !crash(signal)) {
        return set_plain(signal, handler);
    }
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    const macbuild_compat_handler mine = handlers[signal].load();
    const macbuild_compat_handler before = mine != nullptr ? mine : now.sa_handler;
    const bool plain = handler == SIG_DFL || handler == SIG_IGN;
    if (crash(signal)) {
        if (!set_crash(signal, handler)) {
            return SIG_ERR;
        }
        handlers[signal] = plain ? nullptr : handler;
    } else if (plain) {
        if (set_plain(signal, handler) == SIG_ERR) {
            return SIG_ERR;
        }
        handlers[signal] = nullptr;
    } else if (!handle_on_thread(signal, handler)) {
        return SIG_ERR;
    }
    return before;
}
