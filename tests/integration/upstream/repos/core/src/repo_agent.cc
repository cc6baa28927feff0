#include "repo_agent.h"

#include <memory>
#include <mutex>
#include <vector>

#include "filesystem/api.h"
namespace triton { namespace core {

std::string
TritonRepoAgentLibraryName(const std::string& repo_agent_name)
{
#ifdef _WIN32
  return std::string("tritonrepoagent_") + repo_agent_name + ".dll";
#else
  return std::string("libtritonrepoagent_") + repo_agent_name + ".so";
#endif
}

TRITONSERVER_Error*
LoadRepoAgent(const std::string& folder, const std::string& name)
{
  static std::mutex mu;
  static std::vector<std::unique_ptr<SharedLibrary>> loaded;
  const std::string path = JoinPath({folder, name});
  const std::string agent_libname = TritonRepoAgentLibraryName(name);
  const std::string file = JoinPath({path, agent_libname});
  if (!FileExists(file)) {
    return NewError(TRITONSERVER_ERROR_NOT_FOUND, "unable to find '" + agent_libname + "' in " + path);
  }
  auto library = std::make_unique<SharedLibrary>();
  RETURN_IF_ERROR(library->OpenLibraryHandle(file));
  std::lock_guard<std::mutex> lock(mu);
  loaded.push_back(std::move(library));
  return nullptr;
}

}}  // namespace triton::core
