#include "macbuild/compat/machine.hpp"

#include <fstream>
#include <map>

namespace macbuild::compat {

std::optional<CpuTicks> cpu_ticks()
{
    std::ifstream file("/proc/stat");
    std::string label;
    CpuTicks ticks;
    if (file >> label >> ticks.user >> ticks.nice >> ticks.system >> ticks.idle)
        return ticks;
    return std::nullopt;
}

std::optional<MemoryInfo> memory_of_machine()
{
    std::ifstream file("/proc/meminfo");
    std::map<std::string, std::uint64_t> kilobytes;
    std::string name, unit;
    for (std::uint64_t value = 0; file >> name >> value && std::getline(file, unit);)
        kilobytes[name] = value;
    if (!kilobytes.contains("MemTotal:") || !kilobytes.contains("MemAvailable:"))
        return std::nullopt;
    return MemoryInfo{kilobytes["MemTotal:"] * 1024, kilobytes["MemFree:"] * 1024, kilobytes["MemAvailable:"] * 1024,
                      kilobytes["Cached:"] * 1024};
}

}  // namespace macbuild::compat
