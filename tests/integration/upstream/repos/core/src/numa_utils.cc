#include "numa_utils.h"

#ifdef _WIN32
namespace triton { namespace core {

TRITONSERVER_Error*
SetNumaConfigOnThread(const HostPolicyCmdlineConfig& host_policy)
{
  return nullptr;
}

TRITONSERVER_Error*
ResetNumaMemoryPolicy()
{
  return nullptr;
}

}}  // namespace triton::core
#else
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <sched.h>

#include <cstring>
namespace triton { namespace core {
namespace {

TRITONSERVER_Error*
SetNumaMemoryPolicy(int node)
{
  const unsigned long mask = 1UL << node;
  if (node > numa_max_node() || set_mempolicy(MPOL_BIND, &mask, numa_max_node() + 2) != 0) {
    return NewError(TRITONSERVER_ERROR_INTERNAL, std::string("unable to set NUMA memory policy: ") + strerror(errno));
  }
  return nullptr;
}

TRITONSERVER_Error*
SetNumaThreadAffinity(pthread_t thread, int cpu)
{
  cpu_set_t cpuset;
  CPU_ZERO(&cpuset);
  CPU_SET(cpu, &cpuset);
  if (pthread_setaffinity_np(thread, sizeof(cpu_set_t), &cpuset) != 0) {
    return NewError(TRITONSERVER_ERROR_INTERNAL, std::string("unable to set NUMA thread affinity: ") + strerror(errno));
  }
  return nullptr;
}

}  // namespace

TRITONSERVER_Error*
SetNumaConfigOnThread(const HostPolicyCmdlineConfig& host_policy)
{
  const auto node = host_policy.find("numa-node");
  if (node != host_policy.end()) {
    RETURN_IF_ERROR(SetNumaMemoryPolicy(std::stoi(node->second)));
  }
  const auto cpu = host_policy.find("cpu-cores");
  if (cpu != host_policy.end()) {
    RETURN_IF_ERROR(SetNumaThreadAffinity(pthread_self(), std::stoi(cpu->second)));
  }
  return nullptr;
}

TRITONSERVER_Error*
ResetNumaMemoryPolicy()
{
  if (set_mempolicy(MPOL_DEFAULT, nullptr, 0) != 0) {
    return NewError(TRITONSERVER_ERROR_INTERNAL, std::string("unable to reset NUMA memory policy: ") + strerror(errno));
  }
  int mode = MPOL_DEFAULT;
  if (get_mempolicy(&mode, nullptr, 0, nullptr, 0) != 0 || mode != MPOL_DEFAULT) {
    return NewError(TRITONSERVER_ERROR_INTERNAL, "the NUMA memory policy is not the default one");
  }
  return nullptr;
}

}}  // namespace triton::core
#endif
