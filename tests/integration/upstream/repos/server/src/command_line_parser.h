#pragma once
#include <string>
#include <vector>

#include "common.h"
namespace triton { namespace server {

struct TritonServerParameters {
  std::string server_id_{"triton"};
  std::vector<std::string> model_repository_paths_;
  std::string backend_dir_{"/opt/tritonserver/backends"};
  std::string repoagent_dir_{"/opt/tritonserver/repoagents"};
  std::string cache_dir_{"/opt/tritonserver/caches"};
  std::vector<std::pair<std::string, std::string>> cache_config_;
  int exit_timeout_secs_{30};
  bool strict_readiness_{true};
  bool exit_on_error_{true};
  TRITONSERVER_ModelControlMode control_mode_{TRITONSERVER_MODEL_CONTROL_NONE};
  std::vector<std::string> startup_models_;
  bool allow_http_{true};
  std::string http_address_{"0.0.0.0"};
  int http_port_{8000};
  bool reuse_http_port_{false};
  int http_thread_cnt_{8};
  bool allow_client_shm_{false};
  bool allow_metrics_{true};
  int metrics_port_{8002};
  bool help_{false};
};

// An error text, empty if all is well.
std::string ParseCommandLine(int argc, char** argv, TritonServerParameters* params);
std::string Usage();

}}  // namespace triton::server
