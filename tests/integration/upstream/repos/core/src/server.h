#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend_model.h"
namespace triton { namespace core {

struct ServerOptions {
  std::string id = "triton";
  std::vector<std::string> repositories;
  std::string backend_directory, repoagent_directory, cache_directory;
  std::vector<std::string> caches;
  unsigned int exit_timeout = 30;
  bool strict_readiness = true;
  bool metrics = true;
  TRITONSERVER_ModelControlMode control = TRITONSERVER_MODEL_CONTROL_NONE;
  std::set<std::string> startup_models;
};

class Server {
 public:
  explicit Server(ServerOptions options) : options_(std::move(options)) {}
  ~Server();
  TRITONSERVER_Error* Init();
  // No new requests; returns when those that run are answered, or it takes too long.
  TRITONSERVER_Error* Stop();
  bool IsReady();
  TRITONSERVER_Error* Find(const std::string& name, int64_t version, std::shared_ptr<Model>* model);
  TRITONSERVER_Error* Infer(Request* request);
  // While the server runs, in explicit mode; a model that runs is replaced.
  TRITONSERVER_Error* Load(const std::string& name);
  TRITONSERVER_Error* Unload(const std::string& name);
  std::string Metadata() const;
  std::string ModelMetadata(const Model& model) const;
  std::string Index();
  std::string Statistics(const std::string& name);
  void Done();

 private:
  TRITONSERVER_Error* CheckControl() const;
  // The model of that name in the first repository that has it, or why there is none; the lock is held.
  TRITONSERVER_Error* Create(const std::string& name);

  ServerOptions options_;
  std::mutex mu_;
  std::condition_variable idle_;
  std::map<std::string, std::shared_ptr<Backend>> backends_;
  std::map<std::string, std::shared_ptr<Model>> models_;
  std::map<std::string, std::string> failures_;
  std::map<std::string, int64_t> loaded_at_;
  uint64_t running_ = 0;
  bool ready_ = false, stopping_ = false;
};

}}  // namespace triton::core
