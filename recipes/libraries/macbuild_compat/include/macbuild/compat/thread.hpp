// Threads: number, name and priority.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace macbuild::compat {

// The number that syscall() gets on Linux (x86-64: 186, arm64: 178). On Darwin 286 is another call of that name, so
// this is the number of neither.
inline constexpr long kSysGettid = 0x6d620001;

// The system's number of the calling thread. Darwin: pthread_threadid_np(), 64 bits, may equal a process's number.
std::uint64_t own_thread_id();

// The number as 2^30 and above, where no process has one (Darwin's are below 100000, Linux's below 2^22).
long thread_number(std::uint64_t id);
bool is_thread_number(long number);

// Darwin has no nice value for a thread but quality-of-service classes, and a place within the class from 0 down to -15
// (pthread/qos.h).
enum class Quality { kUtility, kDefault, kUserInitiated };
struct Priority {
    Quality quality = Quality::kDefault;
    int place = 0;
};

// The class for a nice value of -20 to 19; a lower nice value never gives a lower class or place. Triton uses 0 for
// PRIORITY_MAX, 5 for its default and 19 for PRIORITY_MIN. The background class is never used: its threads stay on
// efficiency cores and wait behind all other input and output, so that a request could take forever.
Priority priority_for_nice(int nice);

// Sets the priority of the calling thread. Returns 0 or errno. Darwin: pthread_set_qos_class_self_np(), which fails with
// EPERM for a thread that left the classes through pthread_setschedparam(). Linux: setpriority().
int set_own_thread_nice(int nice);

// Sets the name that debuggers and `ps -M`/`top -H` show, cut to what the system keeps: Darwin 63 bytes, Linux 15;
// never in the middle of a UTF-8 character.
void set_own_thread_name(std::string_view name);
std::string own_thread_name();

// The longest prefix of a UTF-8 text that has at most `bytes` bytes and ends between characters.
std::string_view cut_utf8(std::string_view text, std::size_t bytes);

}  // namespace macbuild::compat
