#pragma once
#include <memory>
#include <string>

#include "common.h"
#include "shared_memory_manager.h"
namespace triton { namespace server {

class HTTPServer {
 public:
  virtual ~HTTPServer() = default;
  static TRITONSERVER_Error* CreateAPIServer(
      TRITONSERVER_Server* server, const std::shared_ptr<SharedMemoryManager>& shm_manager, const std::string& address,
      int port, bool reuse_port, int thread_cnt, std::unique_ptr<HTTPServer>* http);
  static TRITONSERVER_Error* CreateMetricsServer(
      TRITONSERVER_Server* server, const std::string& address, int port, std::unique_ptr<HTTPServer>* http);
  // Takes no new connection, answers what has come, and ends.
  virtual void Stop(int exit_timeout_secs) = 0;
};

}}  // namespace triton::server
