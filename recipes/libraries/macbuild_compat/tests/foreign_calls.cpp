// Calls as in Triton's sources, compiled with shadow/ first on the include path and -Werror.
#include <errno.h>
#include <fcntl.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace {

// A member and a pointer with the names of functions that the headers redirect: the source must get its own.
struct Allocator {
    int mmap(int value) { return value; }
    int ftruncate = 1;
};

int shared_memory(const std::string& key)
{
    auto* const opener = &shm_open;
    const int region = opener(key.c_str(), O_CREAT | O_RDWR, S_IRUSR | S_IWUSR);
    if (region == -1)
        return 1;
    int result = 0;
    if (ftruncate(region, 3 * 16384) == -1 || ftruncate(region, 3 * 16384) == -1)
        result = 2;
    struct stat facts;
    if (fstat(region, &facts) == -1 || facts.st_size < 3 * 16384)
        result = 3;
    void* const part = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region, 5 * 4096);
    if (part == MAP_FAILED) {
        result = 4;
    } else {
        std::memset(part, 7, 4096);
        if (munmap(part, 4096) == -1)
            result = 5;
    }
    close(region);
    shm_unlink(key.c_str());
    return result;
}

int priority()
{
    if (setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 5) == -1)
        return 10;
    return 0;
}

int machine()
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(3, &set);
    if (CPU_COUNT(&set) != 1 || !CPU_ISSET(3, &set))
        return 20;
#ifdef __APPLE__
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0 || errno != ENOTSUP)
        return 21;
#endif
    unsigned long mask = 1UL << numa_max_node();
    int mode = -1;
    if (set_mempolicy(MPOL_BIND, &mask, 2) == 0 || errno != ENOSYS)
        return 22;
    if (set_mempolicy(MPOL_DEFAULT, nullptr, 0) != 0 || get_mempolicy(&mode, &mask, 1, nullptr, 0) != 0 || mode != MPOL_DEFAULT || mask != 0)
        return 23;
    return 0;
}

int times()
{
    struct stat facts;
    if (stat("/", &facts) == -1)
        return 30;
    return facts.st_mtim.tv_sec > 0 && facts.st_ctim.tv_nsec >= 0 ? 0 : 31;
}

}  // namespace

int main()
{
    Allocator allocator;
    if (allocator.mmap(1) != allocator.ftruncate)
        return 40;
    const std::string key = "/a key that is longer than Darwin takes/" + std::to_string(getpid());
    if (const int failed = shared_memory(key); failed != 0)
        return failed;
    if (const int failed = priority(); failed != 0)
        return failed;
    if (const int failed = machine(); failed != 0)
        return failed;
    return times();
}
