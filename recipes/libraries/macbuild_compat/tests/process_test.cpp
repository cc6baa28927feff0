#include "macbuild/compat/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "macbuild/compat/posix.h"

using namespace macbuild::compat;
using namespace std::chrono_literals;

namespace {

pid_t sleeper()
{
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}

void reap(pid_t child)
{
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
}

void facts_are_of_that_run()
{
    const auto facts = process_facts(getpid());
    CHECK(facts && facts->started != 0 && facts->parent == getppid());
    CHECK(is_alive(own_process()));
    CHECK(!is_alive({getpid(), own_process().started + 1}));
    CHECK(!is_alive({0, 0}));
    const pid_t child = sleeper();
    const auto of_child = process_facts(child);
    CHECK(of_child && of_child->parent == getpid());
    kill(child, SIGKILL);
    siginfo_t info;
    CHECK(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
    CHECK(!is_alive({child, of_child->started}));  // ended, not reaped
    reap(child);
    CHECK(!is_alive({child, of_child->started}));
}

void the_end_of_a_process_is_seen()
{
    const pid_t child = sleeper();
    int ends[2];
    CHECK(pipe(ends) == 0);
    const int watch = open_exit_watch(child);
    CHECK(watch >= 0);
    CHECK(wait_for_exit(watch, ends[0], 10ms) == WatchResult::kTimedOut);
    CHECK(write(ends[1], "", 1) == 1);
    CHECK(wait_for_exit(watch, ends[0], 10s) == WatchResult::kStopped);
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 1);
    kill(child, SIGKILL);
    CHECK(wait_for_exit(watch, ends[0], 10s) == WatchResult::kExited);
    close(watch);
    reap(child);
    CHECK_EQUAL(open_exit_watch(child), -ESRCH);
    close(ends[0]);
    close(ends[1]);
}

bool becomes(const std::atomic<int>& value, int wanted)
{
    for (int i = 0; i < 1000 && value != wanted; ++i)
        std::this_thread::sleep_for(10ms);
    return value == wanted;
}

void a_watch_calls_once_and_not_after_stop()
{
    std::atomic<int> calls = 0;
    ParentWatch watch;
    const pid_t first = sleeper();
    CHECK_EQUAL(watch.start(first, [&] { ++calls; }), 0);
    std::this_thread::sleep_for(20ms);
    CHECK_EQUAL(calls, 0);
    reap(first);
    CHECK(becomes(calls, 1));
    watch.stop();

    const pid_t second = sleeper();
    CHECK_EQUAL(watch.start(second, [&] { ++calls; }), 0);
    watch.stop();
    reap(second);
    std::this_thread::sleep_for(20ms);
    CHECK_EQUAL(calls, 1);

    CHECK_EQUAL(watch.start(second, [&] { ++calls; }), 0);  // gone before the watch
    CHECK(becomes(calls, 2));
}

// A stub whose server is killed must end, as Triton's does.
void a_child_ends_with_its_parent()
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t server = fork();
    if (server == 0) {
        const pid_t self = getpid();
        if (fork() == 0) {
            close(ends[0]);
            ParentWatch watch;
            if (watch.start(self, [] { _exit(0); }) != 0)
                _exit(1);
            CHECK(write(ends[1], "r", 1) == 1);
            pause();
        }
        close(ends[1]);
        pause();
    }
    close(ends[1]);
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'r');
    const auto start = std::chrono::steady_clock::now();
    kill(server, SIGKILL);
    CHECK(read(ends[0], &byte, 1) == 0);  // the child's end is closed: it has ended
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    int status = 0;
    waitpid(server, &status, 0);
    close(ends[0]);
}

struct Seen {
    std::string output;
    int status = 0;
};

// What a child writes to descriptor 9 and how it ends, started either way.
Seen run(bool spawn, const std::vector<std::string>& words)
{
    std::vector<char*> arguments;
    for (const auto& word : words)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    int ends[2];
    CHECK(pipe(ends) == 0 && dup2(ends[1], 9) == 9);
    close(ends[1]);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    pid_t child = spawn ? macbuild_compat_spawnp(arguments[0], arguments.data()) : fork();
    if (child == 0) {
        execvp(arguments[0], arguments.data());
        _exit(1);
    }
    close(9);
    Seen seen;
    char part[4096];
    for (ssize_t count = 0; (count = read(ends[0], part, sizeof part)) > 0;)
        seen.output.append(part, static_cast<std::size_t>(count));
    close(ends[0]);
    CHECK(waitpid(child, &seen.status, 0) == child);
    return seen;
}

void spawn_is_what_fork_and_exec_are()
{
    setenv("MACBUILD_SPAWN_TEST", "it's \"here\"", 1);
    signal(SIGUSR1, SIG_IGN);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    const std::vector<std::vector<std::string>> all = {
        // Arguments, environment, folder, parent; neither an ignored signal nor a blocked one ends it.
        {"bash", "-c", "printf '%s|' \"$0\" \"$@\" \"$MACBUILD_SPAWN_TEST\" \"$PWD\" $PPID >&9; kill -USR1 $$; kill -USR2 $$; echo alive >&9; exit 7", "a b", ""},
        {"bash", "-c", " exec sh -c 'echo replaced >&9; exit 1'"},
        {"bash", "-c", "kill -9 $$"},
        {"bash", "-c", "umask >&9; ulimit -n >&9; true"},
    };
    for (const auto& words : all) {
        const Seen forked = run(false, words), spawned = run(true, words);
        CHECK_EQUAL(forked.output, spawned.output);
        CHECK_EQUAL(forked.status, spawned.status);
    }
    const Seen first = run(true, all[0]);
    CHECK(first.output.find("alive") != std::string::npos && first.output.find("it's \"here\"|") != std::string::npos);
    CHECK(WIFEXITED(first.status) && WEXITSTATUS(first.status) == 7);
    sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
    char* const missing[] = {const_cast<char*>("/no/such/program"), nullptr};
    errno = 0;
    CHECK(macbuild_compat_spawnp(missing[0], missing) == -1 && errno == ENOENT);
}

void spawn_works_while_threads_run()
{
    std::atomic<bool> done = false;
    std::vector<std::thread> busy;
    for (int i = 0; i < 4; ++i)
        busy.emplace_back([&] {
            while (!done)
                delete new std::string(1000, 'x');
        });
    for (int i = 0; i < 10; ++i) {
        const Seen seen = run(true, {"sh", "-c", "exit 3"});
        CHECK(WIFEXITED(seen.status) && WEXITSTATUS(seen.status) == 3);
    }
    done = true;
    for (auto& thread : busy)
        thread.join();
}

}  // namespace

int main()
{
    facts_are_of_that_run();
    the_end_of_a_process_is_seen();
    a_watch_calls_once_and_not_after_stop();
    a_child_ends_with_its_parent();
    spawn_is_what_fork_and_exec_are();
    spawn_works_while_threads_run();
}
