#include "macbuild/compat/thread.hpp"

#include <pthread.h>
#include <pthread/qos.h>

namespace macbuild::compat {
namespace {

constexpr std::size_t kLongestName = 63;  // MAXTHREADNAMESIZE of sys/proc_info.h less the zero

qos_class_t class_of(Quality quality)
{
    switch (quality) {
        case Quality::kUserInitiated: return QOS_CLASS_USER_INITIATED;
        case Quality::kUtility: return QOS_CLASS_UTILITY;
        case Quality::kDefault: break;
    }
    return QOS_CLASS_DEFAULT;
}

}  // namespace

std::uint64_t own_thread_id()
{
    std::uint64_t id = 0;
    pthread_threadid_np(nullptr, &id);
    return id;
}

int set_own_thread_nice(int nice)
{
    const Priority priority = priority_for_nice(nice);
    return pthread_set_qos_class_self_np(class_of(priority.quality), priority.place);
}

void set_own_thread_name(std::string_view name)
{
    pthread_setname_np(std::string(cut_utf8(name, kLongestName)).c_str());
}

std::string own_thread_name()
{
    char name[kLongestName + 1] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    return name;
}

}  // namespace macbuild::compat
