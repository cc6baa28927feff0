#include "macbuild/compat/thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <tuple>

#include "check.hpp"
#include "macbuild/compat/posix.h"

using namespace macbuild::compat;

namespace {

void lower_nice_is_never_less()
{
    const auto rank = [](int nice) {
        const Priority priority = priority_for_nice(nice);
        CHECK(priority.place <= 0 && priority.place >= -15);  // QOS_MIN_RELATIVE_PRIORITY of pthread/qos.h
        return std::tuple(static_cast<int>(priority.quality), priority.place);
    };
    for (int nice = -20; nice < 19; ++nice)
        CHECK(rank(nice) >= rank(nice + 1));
    CHECK(rank(0) > rank(5) && rank(5) > rank(19));  // Triton's PRIORITY_MAX, default and PRIORITY_MIN
    CHECK(priority_for_nice(0).quality == Quality::kDefault && priority_for_nice(0).place == 0);
    CHECK(priority_for_nice(5).quality == Quality::kDefault);
    CHECK(priority_for_nice(19).quality == Quality::kUtility);
    CHECK(rank(-100) == rank(-20) && rank(100) == rank(19));
}

void a_threads_number_is_no_process()
{
    const long main_thread = macbuild_compat_gettid();
    CHECK_EQUAL(macbuild_compat_gettid(), main_thread);
    CHECK(main_thread >= 1L << 30 && main_thread <= 0x7fffffff);
    CHECK(is_thread_number(main_thread));
    CHECK(!is_thread_number(getpid()) && !is_thread_number(0) && !is_thread_number(-1) && !is_thread_number(1L << 31));
    CHECK_EQUAL(macbuild_compat_syscall(kSysGettid), main_thread);
    CHECK(macbuild_compat_syscall(1) == -1 && errno == ENOSYS);
    long other = main_thread;
    std::thread([&] { other = macbuild_compat_gettid(); }).join();
    CHECK(other != main_thread);
    CHECK_EQUAL(thread_number(0xffffffffffffffff), 0x7fffffff);
}

void a_thread_sets_its_own_priority_only()
{
    const long main_thread = macbuild_compat_gettid();
    const int before = getpriority(PRIO_PROCESS, 0);
    std::thread([&] {
        CHECK(macbuild_compat_setpriority(PRIO_PROCESS, static_cast<id_t>(main_thread), 5) == -1 && errno == ESRCH);
        CHECK_EQUAL(macbuild_compat_setpriority(PRIO_PROCESS, static_cast<id_t>(macbuild_compat_gettid()), 7), 0);
#ifdef __linux__
        CHECK_EQUAL(getpriority(PRIO_PROCESS, 0), 7);
#endif
    }).join();
    CHECK_EQUAL(getpriority(PRIO_PROCESS, 0), before);
    // A number that is not a thread is passed to the system.
    CHECK_EQUAL(macbuild_compat_setpriority(PRIO_PROCESS, 0, before), 0);
    CHECK(macbuild_compat_setpriority(-1, 0, 0) == -1 && errno == EINVAL);
}

void names_are_cut_between_characters()
{
    CHECK_EQUAL(cut_utf8("abc", 3), "abc");
    CHECK_EQUAL(cut_utf8("abcd", 3), "abc");
    CHECK_EQUAL(cut_utf8("ab\xc3\xa9", 3), "ab");
    CHECK_EQUAL(cut_utf8("\xf0\x9f\x90\x8d", 2), "");
    std::thread([] {
        set_own_thread_name("model \xc3\xa9t\xc3\xa9");
        CHECK_EQUAL(own_thread_name(), "model \xc3\xa9t\xc3\xa9");
        set_own_thread_name(std::string(200, 'n'));
        CHECK(own_thread_name().size() >= 15 && own_thread_name().size() < 200);
    }).join();
}

}  // namespace

int main()
{
    lower_nice_is_never_less();
    a_threads_number_is_no_process();
    a_thread_sets_its_own_priority_only();
    names_are_cut_between_characters();
}
