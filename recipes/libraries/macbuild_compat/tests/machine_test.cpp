#include "macbuild/compat/machine.hpp"

#include <map>
#include <string>

#include "check.hpp"

using namespace macbuild::compat;

namespace {

// Reads the stream as Triton's metrics do: the first line of /proc/stat, and name-value lines of /proc/meminfo.
CpuTicks read_stat(std::istream& file)
{
    std::string line, label;
    std::getline(file, line);
    CHECK(line.starts_with("cpu "));
    std::istringstream fields(line);
    CpuTicks ticks;
    fields >> label >> ticks.user >> ticks.nice >> ticks.system >> ticks.idle;
    CHECK(fields);
    int others = 0;
    for (std::uint64_t value = 0; fields >> value;)
        ++others;
    CHECK_EQUAL(others, 6);
    return ticks;
}

std::map<std::string, std::uint64_t> read_meminfo(std::istream& file)
{
    std::map<std::string, std::uint64_t> bytes;
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string name, unit;
        std::uint64_t value = 0;
        CHECK(fields >> name >> value >> unit);
        CHECK(name.back() == ':' && unit == "kB");
        name.pop_back();
        bytes[name] = value * 1024;
    }
    return bytes;
}

void text_is_read_back()
{
    const CpuTicks ticks = {1ULL << 40, 2, 3, 4};
    std::istringstream stat(proc_stat_text(ticks));
    CHECK(read_stat(stat) == ticks);
    std::istringstream meminfo(proc_meminfo_text({1 << 30, 1 << 20, 1 << 25, 1 << 22}));
    const auto bytes = read_meminfo(meminfo);
    CHECK_EQUAL(bytes.at("MemTotal"), 1U << 30);
    CHECK_EQUAL(bytes.at("MemFree"), 1U << 20);
    CHECK_EQUAL(bytes.at("MemAvailable"), 1U << 25);
    CHECK_EQUAL(bytes.at("Cached"), 1U << 22);
}

void files_of_this_machine_are_right()
{
    ProcFile stat("/proc/stat");
    CHECK(stat.good() && stat.is_open());
    const CpuTicks before = read_stat(stat);
    CHECK(before.user + before.system > 0 && before.idle > 0);
    volatile double sum = 0;
    for (int i = 0; i < 100'000'000; ++i)
        sum = sum + i;
    ProcFile later("/proc/stat");
    const CpuTicks after = read_stat(later);
    CHECK(after.user + after.nice > before.user + before.nice);
    CHECK(after.idle >= before.idle);
    ProcFile meminfo("/proc/meminfo");
    CHECK(meminfo.good());
    const auto bytes = read_meminfo(meminfo);
    CHECK(bytes.at("MemTotal") > 256U << 20);
    CHECK(bytes.at("MemAvailable") > 0 && bytes.at("MemAvailable") <= bytes.at("MemTotal"));
    CHECK(bytes.at("MemFree") <= bytes.at("MemTotal"));
    ProcFile other("/proc/self/status");
    CHECK(!other.good() && !other.is_open());
}

void counters_of_32_bits_go_on()
{
    TickCounter counter;
    CHECK((counter.extend({0xfffffff0, 1, 2, 0xffffffff}) == CpuTicks{0xfffffff0, 1, 2, 0xffffffff}));
    CHECK((counter.extend({0x10, 1, 3, 0}) == CpuTicks{0x100000010, 1, 3, 0x100000000}));
    CHECK((counter.extend({0x10, 1, 3, 0}) == CpuTicks{0x100000010, 1, 3, 0x100000000}));
}

void memory_is_counted_as_the_activity_monitor_does()
{
    // A Mac of 16 GiB with pages of 16 KiB: 1048576 pages.
    MachMemory mac;
    mac.memory_size = 16ULL << 30;
    mac.page = 16384;
    mac.free = 100'000;
    mac.speculative = 40'000;
    mac.internal = 300'000;
    mac.purgeable = 10'000;
    mac.external = 350'000;
    mac.wired = 120'000;
    mac.compressor = 130'000;
    const MemoryInfo info = memory_info(mac);
    CHECK_EQUAL(info.total, mac.memory_size);
    CHECK_EQUAL(info.free, 60'000ULL * 16384);
    CHECK_EQUAL(info.available, mac.memory_size - 540'000ULL * 16384);
    CHECK_EQUAL(info.cached, 350'000ULL * 16384);
    mac.wired = 2'000'000;  // counts are not read at one instant: nothing may wrap
    CHECK_EQUAL(memory_info(mac).available, info.free);
    mac.purgeable = 400'000;
    mac.speculative = 200'000;
    CHECK_EQUAL(memory_info(mac).free, 0U);
}

}  // namespace

int main()
{
    text_is_read_back();
    files_of_this_machine_are_right();
    counters_of_32_bits_go_on();
    memory_is_counted_as_the_activity_monitor_does();
}
