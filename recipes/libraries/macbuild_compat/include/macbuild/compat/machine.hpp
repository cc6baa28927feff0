// Processor load and memory use, as text for readers of /proc/stat and /proc/meminfo.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>

namespace macbuild::compat {

// Time since the start of the machine, all processors together, in ticks of 1/100 s.
struct CpuTicks {
    std::uint64_t user = 0, nice = 0, system = 0, idle = 0;
    bool operator==(const CpuTicks&) const = default;
};

struct MemoryInfo {  // bytes
    std::uint64_t total = 0;
    std::uint64_t free = 0;       // not used for anything
    std::uint64_t available = 0;  // for new programs, without writing anything out
    std::uint64_t cached = 0;     // holds contents of files
    bool operator==(const MemoryInfo&) const = default;
};

// Counts of Darwin's kernel: vm_statistics64 of mach/vm_statistics.h, in pages, and hw.memsize in bytes.
struct MachMemory {
    std::uint64_t memory_size = 0, page = 0;
    std::uint64_t free = 0;         // includes `speculative`
    std::uint64_t speculative = 0;  // read ahead, released immediately
    std::uint64_t internal = 0;     // anonymous, includes `purgeable`
    std::uint64_t purgeable = 0;    // its owner allows it to be discarded
    std::uint64_t external = 0;     // contents of files
    std::uint64_t wired = 0;
    std::uint64_t compressor = 0;   // holds compressed pages
};

// Available memory excludes anonymous pages that must stay, wired pages and the compressor.
MemoryInfo memory_info(const MachMemory& memory);

// Darwin counts ticks of all processors in 32 bits, which wrap around after 2^32 / (100 * processors) seconds: 49 days
// with ten. This extends them, if it is called at least that often.
class TickCounter {
public:
    CpuTicks extend(const std::array<std::uint32_t, 4>& user_nice_system_idle);

private:
    std::array<std::uint32_t, 4> last_{};
    std::array<std::uint64_t, 4> sum_{};
};

// Of the machine; nothing if the system does not report it. Darwin: host_statistics(HOST_CPU_LOAD_INFO).
std::optional<CpuTicks> cpu_ticks();
// Darwin: host_statistics64(HOST_VM_INFO64) and sysctl hw.memsize.
std::optional<MemoryInfo> memory_of_machine();

// The first line of /proc/stat (man 5 proc_stat). Darwin does not report iowait, irq, softirq, steal, guest and
// guest_nice separately; they are 0 and their time is in system and idle, so that the share of busy time is right.
std::string proc_stat_text(const CpuTicks& ticks);

// The lines MemTotal, MemFree, MemAvailable and Cached of /proc/meminfo, in kB.
std::string proc_meminfo_text(const MemoryInfo& memory);

// Replaces std::ifstream for "/proc/stat" and "/proc/meminfo". For any other path, or if the system does not report the
// values, the stream is not good(), like that of a file that cannot be opened.
class ProcFile : public std::istringstream {
public:
    explicit ProcFile(const std::string& path);
    bool is_open() const { return good_; }

private:
    bool good_ = false;
};

}  // namespace macbuild::compat
