#include "macbuild/compat/thread.hpp"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

namespace macbuild::compat {

std::uint64_t own_thread_id() { return static_cast<std::uint64_t>(gettid()); }

int set_own_thread_nice(int nice)
{
    return setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice) == -1 ? errno : 0;
}

void set_own_thread_name(std::string_view name)
{
    pthread_setname_np(pthread_self(), std::string(cut_utf8(name, 15)).c_str());
}

std::string own_thread_name()
{
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    return name;
}

}  // namespace macbuild::compat
