#include <getopt.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "command_line_parser.h"
#include "common.h"
#include "shared_memory_manager.h"
#include "triton/common/logging.h"
#include "triton_signal.h"
#ifdef TRITON_ENABLE_HTTP
#include "http_server.h"
#endif

using namespace triton::server;
namespace {

#define FAIL_IF_ERR(X)                                    \
  do {                                                    \
    if (TRITONSERVER_Error* err__ = (X)) {                \
      std::cerr << "error: " << ErrorText(err__) << '\n'; \
      return 1;                                           \
    }                                                     \
  } while (false)

int
Run(const TritonServerParameters& params)
{
  TRITONSERVER_ServerOptions* options = nullptr;
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsNew(&options));
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetServerId(options, params.server_id_.c_str()));
  for (const auto& each : params.model_repository_paths_) {
    FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, each.c_str()));
  }
  LOG_INFO << "backends are in " << params.backend_dir_;
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetBackendDirectory(options, params.backend_dir_.c_str()));
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetRepoAgentDirectory(options, params.repoagent_dir_.c_str()));
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetCacheDirectory(options, params.cache_dir_.c_str()));
  for (const auto& [name, config] : params.cache_config_) {
    FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetCacheConfig(options, name.c_str(), config.c_str()));
  }
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetExitTimeout(options, unsigned(params.exit_timeout_secs_)));
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetStrictReadiness(options, params.strict_readiness_));
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetModelControlMode(options, params.control_mode_));
  for (const auto& each : params.startup_models_) {
    FAIL_IF_ERR(TRITONSERVER_ServerOptionsSetStartupModel(options, each.c_str()));
  }
  TRITONSERVER_Server* server = nullptr;
  FAIL_IF_ERR(TRITONSERVER_ServerNew(&server, options));
  FAIL_IF_ERR(TRITONSERVER_ServerOptionsDelete(options));
  bool ready = false;
  FAIL_IF_ERR(TRITONSERVER_ServerIsReady(server, &ready));
  if (!ready && params.exit_on_error_) {
    std::cerr << "error: creating server: Internal - failed to load all models\n";
    return 1;
  }

  auto shm_manager = std::make_shared<SharedMemoryManager>(params.allow_client_shm_);
#ifdef TRITON_ENABLE_HTTP
  std::unique_ptr<HTTPServer> http, metrics;
  if (params.allow_http_) {
    FAIL_IF_ERR(HTTPServer::CreateAPIServer(
        server, shm_manager, params.http_address_, params.http_port_, params.reuse_http_port_, params.http_thread_cnt_,
        &http));
  }
#ifdef TRITON_ENABLE_METRICS
  if (params.allow_metrics_) {
    FAIL_IF_ERR(HTTPServer::CreateMetricsServer(server, params.http_address_, params.metrics_port_, &metrics));
  }
#endif
#endif
  WaitForExit();

  TRITONSERVER_Error* stop = TRITONSERVER_ServerStop(server);
#ifdef TRITON_ENABLE_HTTP
  if (http) {
    http->Stop(params.exit_timeout_secs_);
  }
  if (metrics) {
    metrics->Stop(1);
  }
#endif
  shm_manager->UnregisterAll();
  if (stop != nullptr) {
    std::cerr << "error: " << ErrorText(stop) << '\n';
    std::cerr.flush();
    _exit(1);
  }
  FAIL_IF_ERR(TRITONSERVER_ServerDelete(server));
  return 0;
}

}  // namespace

int
main(int argc, char** argv)
{
  TritonServerParameters params;
  const std::string error = ParseCommandLine(argc, argv, &params);
  if (!error.empty()) {
    std::cerr << "error: " << error << '\n';
    return 1;
  }
  if (params.help_) {
    std::cout << "tritonserver " TRITON_VERSION " (synthetic upstream)\n" << Usage();
    return 0;
  }
  RegisterSignalHandler();
  return Run(params);
}
