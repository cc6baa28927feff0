#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "macbuild/compat/process.hpp"

namespace macbuild::compat {

ProcessId own_process()
{
    const auto facts = process_facts(getpid());
    return {getpid(), facts ? facts->started : 0};
}

bool is_alive(const ProcessId& process)
{
    if (const auto facts = process_facts(process.pid))
        return facts->started == process.started;
    return process.pid > 0 && kill(process.pid, 0) == -1 && errno == EPERM;
}

int ParentWatch::start(pid_t parent, std::function<void()> when_gone)
{
    stop();
    const int watch = open_exit_watch(parent);
    if (watch < 0 && watch != -ESRCH)
        return -watch;
    int ends[2];
    if (pipe(ends) == -1) {
        const int error = errno;
        if (watch >= 0)
            close(watch);
        return error;
    }
    for (const int end : ends)
        fcntl(end, F_SETFD, FD_CLOEXEC);
    wake_ = ends[0];
    stop_ = ends[1];
    thread_ = std::thread([watch, wake = wake_, act = std::move(when_gone)] {
        const bool gone = watch < 0 || wait_for_exit(watch, wake, std::chrono::milliseconds(-1)) == WatchResult::kExited;
        if (watch >= 0)
            close(watch);
        if (gone)
            act();
    });
    return 0;
}

void ParentWatch::stop()
{
    if (!thread_.joinable())
        return;
    // Write a byte besides closing: a child just started by another thread may hold a copy of this end.
    (void)!write(stop_, "", 1);
    thread_.join();
    close(wake_);
    close(stop_);
}

}  // namespace macbuild::compat
