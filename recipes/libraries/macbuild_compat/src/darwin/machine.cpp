#include "macbuild/compat/machine.hpp"

#include <mach/mach_host.h>
#include <mach/mach_init.h>
#include <mach/mach_port.h>
#include <mach/vm_statistics.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <mutex>

namespace macbuild::compat {
namespace {

// mach_host_self() adds a reference to the port at each call (mach/mach_init.h), so it is called only once.
mach_port_t host()
{
    static const mach_port_t port = mach_host_self();
    return port;
}

}  // namespace

std::optional<CpuTicks> cpu_ticks()
{
    static std::mutex mutex;
    static TickCounter counter;
    host_cpu_load_info load{};
    mach_msg_type_number_t count = HOST_CPU_LOAD_INFO_COUNT;
    const std::lock_guard guard(mutex);
    if (host_statistics(host(), HOST_CPU_LOAD_INFO, reinterpret_cast<host_info_t>(&load), &count) != KERN_SUCCESS)
        return std::nullopt;
    return counter.extend({load.cpu_ticks[CPU_STATE_USER], load.cpu_ticks[CPU_STATE_NICE], load.cpu_ticks[CPU_STATE_SYSTEM],
                           load.cpu_ticks[CPU_STATE_IDLE]});
}

std::optional<MemoryInfo> memory_of_machine()
{
    MachMemory memory;
    std::size_t size = sizeof memory.memory_size;
    if (sysctlbyname("hw.memsize", &memory.memory_size, &size, nullptr, 0) != 0)
        return std::nullopt;
    vm_statistics64 pages{};
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(host(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) != KERN_SUCCESS)
        return std::nullopt;
    memory.page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    memory.free = pages.free_count;
    memory.speculative = pages.speculative_count;
    memory.internal = pages.internal_page_count;
    memory.purgeable = pages.purgeable_count;
    memory.external = pages.external_page_count;
    memory.wired = pages.wire_count;
    memory.compressor = pages.compressor_page_count;
    return memory_info(memory);
}

}  // namespace macbuild::compat
