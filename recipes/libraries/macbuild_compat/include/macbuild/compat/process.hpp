// Processes: which ones are alive, waiting for their end, and starting one from a process that has threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

namespace macbuild::compat {

// One run of one program. The process number alone is reused some time after the end.
struct ProcessId {
    pid_t pid = 0;
    std::uint64_t started = 0;  // Darwin: microseconds since 1970; Linux: clock ticks since the machine was started
    bool operator==(const ProcessId&) const = default;
};

struct ProcessFacts {
    std::uint64_t started = 0;  // as in ProcessId
    pid_t parent = 0;
};

// What the system knows about a process. Nothing if it does not run, has ended and waits to be reaped, or is hidden.
std::optional<ProcessFacts> process_facts(pid_t pid);

// This process.
ProcessId own_process();

// Returns whether this very process still runs; one of another user that cannot be inspected counts as alive.
bool is_alive(const ProcessId& process);

// The environment of the process. A dylib cannot use `environ` on Darwin (man 7 environ), so this calls _NSGetEnviron.
char** environment();

// A descriptor for wait_for_exit(), or -errno; -ESRCH if there is no such process. Close it when done.
// Darwin: a kqueue with NOTE_EXIT (man 2 kqueue). Linux: a pidfd.
int open_exit_watch(pid_t pid);

enum class WatchResult { kExited, kStopped, kTimedOut, kFailed };

// Waits until the process ends, the descriptor `stop` is readable or closed at its other end, or the time is over.
// A negative time means no limit.
WatchResult wait_for_exit(int watch, int stop, std::chrono::milliseconds time);

// Calls a function once, on its own thread, when a process ends; replaces prctl(PR_SET_PDEATHSIG) and polling with
// kill(pid, 0). No call comes after stop() or the destructor, and the function may use neither.
class ParentWatch {
public:
    ParentWatch() = default;
    ~ParentWatch() { stop(); }
    ParentWatch(const ParentWatch&) = delete;
    ParentWatch& operator=(const ParentWatch&) = delete;

    // Returns 0, or errno if the process cannot be watched. A process that has already ended is no error: the function
    // is called.
    int start(pid_t parent, std::function<void()> when_gone);
    void stop();

private:
    int wake_ = -1, stop_ = -1;  // a pipe: a write to the second ends the thread
    std::thread thread_;
};

}  // namespace macbuild::compat
