// The end of a process that has crashed. Everything below on_crash runs in a signal handler.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "macbuild/compat/signals.hpp"
#include "macbuild/compat/stack_trace.hpp"
#include "safe_text.hpp"

namespace macbuild::compat {
namespace {

constexpr std::size_t stack_size = 256 * 1024;  // arm64 Darwin recommends 128 KiB (SIGSTKSZ)
constexpr int patience = 100;                   // tenths of a second for another thread to write its trace

// The thread that writes, and the signal that it dies of. The thread's id is a pointer on some systems only, hence a C
// cast.
std::atomic<std::uintptr_t> writing{0};
std::atomic<int> dying_of{0};

std::uintptr_t this_thread() noexcept { return (std::uintptr_t)pthread_self(); }  // NOLINT

const char* name_of(int signal) noexcept {
    switch (signal) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGILL:
        return "SIGILL";
    case SIGFPE:
        return "SIGFPE";
    case SIGTRAP:
        return "SIGTRAP";
    case SIGABRT:
        return "SIGABRT";
    default:
        return nullptr;
    }
}

// Does not return: the default action of the signal ends the process, whatever the interrupted code would do next.
[[noreturn]] void die_of(int signal) noexcept {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    raise(signal);
    _exit(128 + signal);
}

void report(int signal, const siginfo_t* info, const void* context) noexcept {
    {
        SafeText out(STDERR_FILENO);
        out.text("\n*** signal ").number(static_cast<unsigned>(signal)).text(" (").text(name_of(signal)).text(")");
        // Codes above 0 are the kernel's own, for a fault at an address (sigaction(2)).
        if (info != nullptr && info->si_code > 0 && signal != SIGABRT) {
            out.text(" at address ").address(reinterpret_cast<std::uintptr_t>(info->si_addr));
        }
        out.text(" in process ").number(static_cast<unsigned>(getpid())).text("\n");
    }
    write_stack_trace(STDERR_FILENO, context);
}

void on_crash(int signal, siginfo_t* info, void* context) {
    std::uintptr_t none = 0;
    if (writing.compare_exchange_strong(none, this_thread())) {
        dying_of = signal;
        report(signal, info, context);
    } else if (none == this_thread()) {
        signal = dying_of;  // An unreadable stack does not change the signal that the process dies of.
    } else {
        for (int turn = 0; turn < patience; ++turn) {
            const timespec tenth{0, 100'000'000};
            nanosleep(&tenth, nullptr);
        }
    }
    die_of(signal);
}

// Gives the calling thread a stack for signals; null if it has one, or none is available.
void* take_stack() noexcept {
    stack_t old{};
    if (sigaltstack(nullptr, &old) != 0 || (old.ss_flags & SS_DISABLE) == 0) {
        return nullptr;
    }
    void* memory = mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = stack_size;
    if (sigaltstack(&stack, nullptr) == 0) {
        return memory;
    }
    munmap(memory, stack_size);
    return nullptr;
}

}  // namespace

AlternateStack::AlternateStack() noexcept : memory_(take_stack()) {}

AlternateStack::~AlternateStack() {
    if (memory_ != nullptr) {
        stack_t stack{};
        stack.ss_flags = SS_DISABLE;
        stack.ss_size = stack_size;
        sigaltstack(&stack, nullptr);
        munmap(memory_, stack_size);
    }
}

bool trace_crash(int signal) noexcept {
    if (name_of(signal) == nullptr) {
        errno = EINVAL;
        return false;
    }
    take_stack();
    // Found out in advance, so that the handler need not ask.
    Image image;
    find_image(reinterpret_cast<std::uintptr_t>(&on_crash), image);
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    // A crash in the handler must reach it again, and be recognized by the thread of the first one.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    return sigaction(signal, &action, nullptr) == 0;
}

}  // namespace macbuild::compat
