#include "macbuild/compat/process.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace macbuild::compat {

std::optional<ProcessFacts> process_facts(pid_t pid)
{
    // man 5 proc_pid_stat: the second field is the program's name in parentheses and may hold anything.
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(file, line);
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    char state = 0;
    ProcessFacts facts;
    fields >> state >> facts.parent;
    std::string skipped;
    for (int field = 5; field < 22; ++field)
        fields >> skipped;
    fields >> facts.started;
    if (!fields || state == 'Z' || state == 'X')
        return std::nullopt;
    return facts;
}

char** environment() { return environ; }

int open_exit_watch(pid_t pid)
{
    const long descriptor = syscall(SYS_pidfd_open, pid, 0);
    return descriptor == -1 ? -errno : static_cast<int>(descriptor);
}

WatchResult wait_for_exit(int watch, int stop, std::chrono::milliseconds time)
{
    const auto end = std::chrono::steady_clock::now() + time;
    for (;;) {
        int left = -1;
        if (time.count() >= 0) {
            using std::chrono::milliseconds;
            left = static_cast<int>(std::max<long>(0, std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now()).count()));
        }
        pollfd both[2] = {{watch, POLLIN, 0}, {stop, POLLIN, 0}};
        const int ready = poll(both, 2, left);
        if (ready == -1 && errno == EINTR)
            continue;
        if (ready == -1)
            return WatchResult::kFailed;
        if (ready == 0)
            return WatchResult::kTimedOut;
        return both[0].revents != 0 ? WatchResult::kExited : WatchResult::kStopped;
    }
}

}  // namespace macbuild::compat
