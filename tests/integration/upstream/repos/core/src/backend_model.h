#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache_entry.h"
#include "infer_request.h"
#include "shared_library.h"
#include "triton/common/model_config.h"
namespace triton { namespace core {

class Instance;
class Scheduler;

// A backend's library and the functions it exports.
struct Backend {
  std::string name, folder;
  SharedLibrary library;
  TRITONSERVER_Message* config = nullptr;
  void* state = nullptr;
  decltype(&TRITONBACKEND_Initialize) initialize = nullptr;
  decltype(&TRITONBACKEND_Finalize) finalize = nullptr;
  decltype(&TRITONBACKEND_ModelInitialize) model_initialize = nullptr;
  decltype(&TRITONBACKEND_ModelFinalize) model_finalize = nullptr;
  decltype(&TRITONBACKEND_ModelInstanceInitialize) instance_initialize = nullptr;
  decltype(&TRITONBACKEND_ModelInstanceFinalize) instance_finalize = nullptr;
  decltype(&TRITONBACKEND_ModelInstanceExecute) execute = nullptr;
  ~Backend();
  TRITONSERVER_Error* Load(const std::string& path, const std::string& backend_directory);
};

class Model {
 public:
  ~Model();
  // The folders that have backends and repository agents.
  struct Places {
    std::string backends, repository_agents;
  };
  static TRITONSERVER_Error* Create(
      const std::string& folder, const Places& where, bool cache,
      std::map<std::string, std::shared_ptr<Backend>>* backends, std::shared_ptr<Model>* model);

  std::string name, folder;
  uint64_t version = 1;
  inference::ModelConfig config;
  std::shared_ptr<Backend> backend;
  SharedLibrary batch_strategy;
  void* state = nullptr;
  std::vector<std::unique_ptr<Instance>> instances;
  std::unique_ptr<Scheduler> scheduler;
  std::atomic<uint64_t> succeeded{0}, failed{0}, rows{0}, batches{0}, succeeded_ns{0}, failed_ns{0};

  uint64_t RowsOf(const Request& request) const;
  // The response of a request with the same inputs, if there is one.
  bool AnswerFromCache(Request* request);
  void Remember(const Request& request, const Response& response);

 private:
  std::string Key(const Request& request) const;
  bool use_cache_ = false;
  std::mutex cache_mu_;
  std::map<std::string, CacheEntry> cache_;
};

std::string AssembleCPPRuntimeLibraryName(const std::string& backend_name);
// A model that holds its own requests; the scheduler gives them to whoever is free.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void Enqueue(Request* request) = 0;
};

}}  // namespace triton::core
