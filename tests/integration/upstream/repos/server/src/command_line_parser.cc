#include "command_line_parser.h"

#include <getopt.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
namespace triton { namespace server {
namespace {

enum OptionId {
  kId = 1000, kModelRepository, kBackendDirectory, kRepoagentDirectory, kCacheDirectory, kCacheConfig, kExitTimeout,
  kStrictReadiness, kExitOnError, kAllowHttp, kHttpAddress, kHttpPort, kReuseHttpPort, kHttpThreadCount, kAllowGrpc,
  kAllowMetrics, kMetricsPort, kModelControlMode, kLoadModel, kAllowClientShm, kIgnored, kHelp
};

const struct option kOptions[] = {
    {"id", required_argument, nullptr, kId},
    {"model-repository", required_argument, nullptr, kModelRepository},
    {"model-store", required_argument, nullptr, kModelRepository},
    {"model-control-mode", required_argument, nullptr, kModelControlMode},
    {"load-model", required_argument, nullptr, kLoadModel},
    {"backend-directory", required_argument, nullptr, kBackendDirectory},
    {"repoagent-directory", required_argument, nullptr, kRepoagentDirectory},
    {"cache-directory", required_argument, nullptr, kCacheDirectory},
    {"cache-config", required_argument, nullptr, kCacheConfig},
    {"exit-timeout-secs", required_argument, nullptr, kExitTimeout},
    {"strict-readiness", required_argument, nullptr, kStrictReadiness},
    {"exit-on-error", required_argument, nullptr, kExitOnError},
    {"allow-http", required_argument, nullptr, kAllowHttp},
    {"http-address", required_argument, nullptr, kHttpAddress},
    {"http-port", required_argument, nullptr, kHttpPort},
    {"reuse-http-port", required_argument, nullptr, kReuseHttpPort},
    {"http-thread-count", required_argument, nullptr, kHttpThreadCount},
    {"allow-client-shm", required_argument, nullptr, kAllowClientShm},
    {"allow-grpc", required_argument, nullptr, kAllowGrpc},
    {"allow-metrics", required_argument, nullptr, kAllowMetrics},
    {"metrics-port", required_argument, nullptr, kMetricsPort},
    {"log-verbose", required_argument, nullptr, kIgnored},
    {"log-info", required_argument, nullptr, kIgnored},
    {"backend-config", required_argument, nullptr, kIgnored},
    {"help", no_argument, nullptr, kHelp},
    {nullptr, 0, nullptr, 0},
};

bool
Parse(const char* text, bool* value)
{
  for (const char* each : {"true", "True", "1"}) {
    if (strcmp(text, each) == 0) {
      *value = true;
      return true;
    }
  }
  *value = false;
  return strcmp(text, "false") == 0 || strcmp(text, "False") == 0 || strcmp(text, "0") == 0;
}

bool
Parse(const char* text, int* value)
{
  char* end = nullptr;
  errno = 0;
  const long number = strtol(text, &end, 10);
  *value = int(number);
  return end != text && *end == '\0' && errno == 0 && number == *value;
}

bool
Parse(const char* text, TRITONSERVER_ModelControlMode* value)
{
  *value = strcmp(text, "explicit") == 0 ? TRITONSERVER_MODEL_CONTROL_EXPLICIT : TRITONSERVER_MODEL_CONTROL_NONE;
  return *value == TRITONSERVER_MODEL_CONTROL_EXPLICIT || strcmp(text, "none") == 0;
}

}  // namespace

std::string
Usage()
{
  std::string text = "Usage: tritonserver [options]\n";
  for (const auto* each = kOptions; each->name != nullptr; ++each) {
    text.append("  --").append(each->name).append(each->has_arg ? " <value>\n" : "\n");
  }
  return text;
}

std::string
ParseCommandLine(int argc, char** argv, TritonServerParameters* params)
{
  int flag, index = 0;
  while ((flag = getopt_long(argc, argv, "", kOptions, &index)) != -1) {
    bool fine = true, allow_grpc = false;
    switch (flag) {
      case kId: params->server_id_ = optarg; break;
      case kModelRepository: params->model_repository_paths_.emplace_back(optarg); break;
      case kModelControlMode: fine = Parse(optarg, &params->control_mode_); break;
      case kLoadModel: params->startup_models_.emplace_back(optarg); break;
      case kBackendDirectory: params->backend_dir_ = optarg; break;
      case kRepoagentDirectory: params->repoagent_dir_ = optarg; break;
      case kCacheDirectory: params->cache_dir_ = optarg; break;
      case kCacheConfig: {
        const std::string text(optarg);
        params->cache_config_.emplace_back(text.substr(0, text.find(',')), text);
        break;
      }
      case kExitTimeout: fine = Parse(optarg, &params->exit_timeout_secs_); break;
      case kStrictReadiness: fine = Parse(optarg, &params->strict_readiness_); break;
      case kExitOnError: fine = Parse(optarg, &params->exit_on_error_); break;
      case kAllowHttp: fine = Parse(optarg, &params->allow_http_); break;
      case kHttpAddress: params->http_address_ = optarg; break;
      case kHttpPort: fine = Parse(optarg, &params->http_port_); break;
      case kReuseHttpPort: fine = Parse(optarg, &params->reuse_http_port_); break;
      case kHttpThreadCount: fine = Parse(optarg, &params->http_thread_cnt_); break;
      case kAllowClientShm: fine = Parse(optarg, &params->allow_client_shm_); break;
      case kAllowGrpc:
        fine = Parse(optarg, &allow_grpc);
        if (allow_grpc) {
          return "--allow-grpc: built without gRPC";
        }
        break;
      case kAllowMetrics: fine = Parse(optarg, &params->allow_metrics_); break;
      case kMetricsPort: fine = Parse(optarg, &params->metrics_port_); break;
      case kIgnored: break;
      case kHelp: params->help_ = true; break;
      default: return "unknown option";  // getopt_long has named it
    }
    if (!fine) {
      return std::string("invalid value '") + optarg + "' for --" + kOptions[index].name;
    }
  }
  if (optind < argc) {
    return std::string("unexpected argument: ") + argv[optind];
  }
  if (params->model_repository_paths_.empty() && !params->help_) {
    return "--model-repository must be specified";
  }
  return "";
}

}}  // namespace triton::server
