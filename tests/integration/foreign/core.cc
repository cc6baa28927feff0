#include "core.h"

#include <dlfcn.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "common.h"

int FOREIGN_Nodes()
{
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(0, &cpus);
  struct stat st;
  if (stat("/", &st) != 0 || st.st_mtim.tv_sec == 0)
    return -1;
  return numa_max_node() + 1;
}

const char* FOREIGN_Load(const char* path)
{
  static std::string said;
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  said = handle == nullptr ? "unable to load: " + std::string(dlerror()) : "";
  return said.c_str();
}

// Not in the version script.
int internal() { return TellsOfBrokenConnection() ? 1 : 0; }
