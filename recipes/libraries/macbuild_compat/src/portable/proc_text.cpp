#include <algorithm>

#include "macbuild/compat/machine.hpp"

namespace macbuild::compat {

MemoryInfo memory_info(const MachMemory& memory)
{
    const auto less = [](std::uint64_t all, std::uint64_t part) { return all - std::min(all, part); };
    const std::uint64_t kept = less(memory.internal, memory.purgeable) + memory.wired + memory.compressor;
    MemoryInfo info;
    info.total = memory.memory_size;
    info.free = std::min(info.total, less(memory.free, memory.speculative) * memory.page);
    info.available = std::max(info.free, less(info.total, kept * memory.page));
    info.cached = std::min(info.total, memory.external * memory.page);
    return info;
}

CpuTicks TickCounter::extend(const std::array<std::uint32_t, 4>& now)
{
    for (std::size_t i = 0; i < now.size(); ++i) {
        sum_[i] += static_cast<std::uint32_t>(now[i] - last_[i]);  // modulo 2^32
        last_[i] = now[i];
    }
    return {sum_[0], sum_[1], sum_[2], sum_[3]};
}

std::string proc_stat_text(const CpuTicks& ticks)
{
    std::ostringstream text;
    text << "cpu  " << ticks.user << ' ' << ticks.nice << ' ' << ticks.system << ' ' << ticks.idle << " 0 0 0 0 0 0\n";
    return text.str();
}

std::string proc_meminfo_text(const MemoryInfo& memory)
{
    std::ostringstream text;
    text << "MemTotal: " << memory.total / 1024 << " kB\nMemFree: " << memory.free / 1024 << " kB\nMemAvailable: "
         << memory.available / 1024 << " kB\nCached: " << memory.cached / 1024 << " kB\n";
    return text.str();
}

ProcFile::ProcFile(const std::string& path)
{
    if (path == "/proc/stat") {
        if (const auto ticks = cpu_ticks(); ticks && (good_ = true))
            str(proc_stat_text(*ticks));
    } else if (path == "/proc/meminfo") {
        if (const auto memory = memory_of_machine(); memory && (good_ = true))
            str(proc_meminfo_text(*memory));
    }
    if (!good_)
        setstate(failbit);
}

}  // namespace macbuild::compat
