#include "macbuild/compat/process.hpp"

#include <crt_externs.h>
#include <libproc.h>
#include <sys/event.h>
#include <sys/proc_info.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace macbuild::compat {
namespace {

constexpr std::uint32_t kZombie = 5;  // SZOMB of sys/proc.h, which declares it only for the kernel

int own_kqueue(const struct kevent* changes, int count)
{
    const int queue = kqueue();  // closed by exec and not inherited by fork (man 2 kqueue)
    if (queue == -1)
        return -errno;
    if (kevent(queue, changes, count, nullptr, 0, nullptr) == -1) {
        const int error = errno;
        close(queue);
        return -error;
    }
    return queue;
}

}  // namespace

std::optional<ProcessFacts> process_facts(pid_t pid)
{
    proc_bsdinfo info{};
    if (proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, &info, sizeof info) != static_cast<int>(sizeof info) || info.pbi_status == kZombie)
        return std::nullopt;
    return ProcessFacts{info.pbi_start_tvsec * 1'000'000 + info.pbi_start_tvusec, static_cast<pid_t>(info.pbi_ppid)};
}

char** environment() { return *_NSGetEnviron(); }

int open_exit_watch(pid_t pid)
{
    struct kevent change;
    EV_SET(&change, static_cast<uintptr_t>(pid), EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, nullptr);
    return own_kqueue(&change, 1);
}

WatchResult wait_for_exit(int watch, int stop, std::chrono::milliseconds time)
{
    struct kevent change;
    EV_SET(&change, static_cast<uintptr_t>(stop), EVFILT_READ, EV_ADD, 0, 0, nullptr);
    if (stop >= 0 && kevent(watch, &change, 1, nullptr, 0, nullptr) == -1)
        return WatchResult::kFailed;
    const auto end = std::chrono::steady_clock::now() + time;
    for (;;) {
        timespec left{};
        if (time.count() >= 0) {
            const auto rest = std::max(std::chrono::nanoseconds(end - std::chrono::steady_clock::now()), std::chrono::nanoseconds(0));
            left = {static_cast<time_t>(rest.count() / 1'000'000'000), static_cast<long>(rest.count() % 1'000'000'000)};
        }
        struct kevent events[2];
        const int ready = kevent(watch, nullptr, 0, events, 2, time.count() < 0 ? nullptr : &left);
        if (ready == -1 && errno == EINTR)
            continue;
        if (ready == -1)
            return WatchResult::kFailed;
        if (ready == 0)
            return WatchResult::kTimedOut;
        const bool exited = std::any_of(events, events + ready, [](const auto& event) { return event.filter == EVFILT_PROC; });
        return exited ? WatchResult::kExited : WatchResult::kStopped;
    }
}

}  // namespace macbuild::compat
