// Signals that a server handles: on a thread, with locks, from anywhere.
#include "macbuild/compat/signals.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "check.hpp"

namespace compat = macbuild::compat;

namespace {

std::mutex mutex;
std::condition_variable changed;
int arrived = 0;
int last = 0;
bool on_main = false;
pthread_t main_thread;

// Things that a handler of signal(2) must not do: lock, allocate, wake up others.
void remember(int signal) {
    const std::lock_guard lock(mutex);
    ++arrived;
    last = signal;
    on_main = on_main || pthread_equal(pthread_self(), main_thread) != 0;
    const std::string text(1000, 'x');
    last += static_cast<int>(text.size()) - 1000;
    changed.notify_all();
}

bool wait_until(int count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] { return arrived >= count; });
}

void forget() {
    const std::lock_guard lock(mutex);
    arrived = 0;
    last = 0;
}

void a_handler_may_lock_what_the_thread_has_locked() {
    CHECK(compat::handle_on_thread(SIGTERM, remember));
    forget();
    {
        const std::lock_guard lock(mutex);
        CHECK(raise(SIGTERM) == 0);  // In a handler of signal(2) this would never end.
        CHECK_EQUAL(arrived, 0);
    }
    CHECK(wait_until(1));
    CHECK_EQUAL(last, SIGTERM);
    CHECK(!on_main);
}

void each_signal_has_its_handler() {
    CHECK(compat::handle_on_thread(SIGINT, remember));
    CHECK(compat::handle_on_thread(SIGUSR1, remember));
    for (const int signal : {SIGINT, SIGUSR1, SIGTERM}) {
        forget();
        CHECK(kill(getpid(), signal) == 0);
        CHECK(wait_until(1));
        CHECK_EQUAL(last, signal);
    }
}

void signals_of_many_threads_all_lead_to_a_call() {
    forget();
    std::vector<std::thread> threads;
    for (int index = 0; index < 8; ++index) {
        threads.emplace_back([] {
            for (int turn = 0; turn < 100; ++turn) {
                pthread_kill(pthread_self(), SIGUSR1);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(wait_until(800));
}

void a_call_that_was_interrupted_goes_on() {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pthread_t reader = pthread_self();
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        pthread_kill(reader, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        CHECK(write(ends[1], "x", 1) == 1);
    });
    char letter = 0;
    CHECK(read(ends[0], &letter, 1) == 1);
    other.join();
    close(ends[0]);
    close(ends[1]);
}

void faults_and_nonsense_are_refused() {
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGKILL, SIGSTOP, 0, -1, 32, 1000}) {
        CHECK(!compat::handle_on_thread(signal, remember));
        CHECK_EQUAL(errno, EINVAL);
    }
}

void foreign_code_sees_what_it_has_set() {
    CHECK(macbuild_compat_signal(SIGHUP, remember) == SIG_DFL);
    CHECK(macbuild_compat_signal(SIGHUP, SIG_IGN) == remember);
    CHECK(kill(getpid(), SIGHUP) == 0);
    CHECK(macbuild_compat_signal(SIGHUP, remember) == SIG_IGN);
    forget();
    CHECK(kill(getpid(), SIGHUP) == 0);
    CHECK(wait_until(1));
    CHECK_EQUAL(last, SIGHUP);
    CHECK(macbuild_compat_signal(SIGHUP, SIG_DFL) == remember);
    CHECK(macbuild_compat_signal(SIGSEGV, SIG_DFL) != SIG_ERR);  // A sanitizer may have set it.
    CHECK(macbuild_compat_signal(SIGSEGV, remember) == SIG_DFL);
    CHECK(macbuild_compat_signal(SIGSEGV, SIG_DFL) == remember);
    struct sigaction action {};
    CHECK(sigaction(SIGBUS, nullptr, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK(macbuild_compat_signal(SIGCHLD, SIG_IGN) == SIG_DFL);
    CHECK(macbuild_compat_signal(SIGCHLD, SIG_DFL) == SIG_IGN);
    errno = 0;
    CHECK(macbuild_compat_signal(SIGKILL, remember) == SIG_ERR && errno == EINVAL);
    CHECK(macbuild_compat_signal(1000, remember) == SIG_ERR);
}

void a_fork_without_a_program_dies_and_the_parent_hears_nothing() {
    forget();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (;;) {
            pause();
        }
    }
    CHECK(kill(child, SIGTERM) == 0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    CHECK_EQUAL(arrived, 0);
}

void a_fork_can_have_a_thread_of_its_own() {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        forget();
        _exit(compat::handle_on_thread(SIGTERM, remember) && raise(SIGTERM) == 0 && wait_until(1) ? 7 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

// A server: ends cleanly at SIGTERM, with the status of a clean end.
int serve() {
    CHECK(macbuild_compat_signal(SIGTERM, remember) != SIG_ERR);
    std::puts("ready");
    std::fflush(stdout);
    CHECK(wait_until(1));
    std::puts("drained");
    return 0;
}

void a_server_ends_in_good_order() {
    const check::Child child = check::start({"serve"});
    CHECK_EQUAL(check::line_of(child), "ready");
    CHECK(kill(child.process, SIGTERM) == 0);
    const check::End end = check::wait_for(child);
    CHECK(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0);
    CHECK_EQUAL(end.output, "drained\n");
}

// Writes to a connection that the other side has closed.
int write_to_closed() {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    close(ends[1]);
    CHECK(write(ends[0], "x", 1) == -1 && errno == EPIPE);
    return 7;
}

void a_broken_connection_is_no_end() {
    check::End end = check::wait_for(check::start({"write"}));
    CHECK(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGPIPE);
    end = check::wait_for(check::start({"ignore"}));
    CHECK(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 7);
}

void the_programs_own_action_for_broken_connections_stays() {
    CHECK(signal(SIGPIPE, remember) == SIG_DFL);
    compat::ignore_sigpipe();
    CHECK(signal(SIGPIPE, SIG_DFL) == remember);
}

}  // namespace

int main(int count, char** words) {
    const std::string part = count > 1 ? words[1] : "";
    if (part == "serve") {
        return serve();
    }
    if (part == "ignore") {
        compat::ignore_sigpipe();
    }
    if (!part.empty()) {
        return write_to_closed();
    }
    main_thread = pthread_self();
    a_broken_connection_is_no_end();
    the_programs_own_action_for_broken_connections_stays();
    a_handler_may_lock_what_the_thread_has_locked();
    each_signal_has_its_handler();
    signals_of_many_threads_all_lead_to_a_call();
    a_call_that_was_interrupted_goes_on();
    faults_and_nonsense_are_refused();
    foreign_code_sees_what_it_has_set();
    a_fork_without_a_program_dies_and_the_parent_hears_nothing();
    a_fork_can_have_a_thread_of_its_own();
    a_server_ends_in_good_order();
}
