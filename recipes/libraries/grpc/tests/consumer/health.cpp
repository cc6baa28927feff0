// A server with gRPC's own health service, and a client that asks it in the same process.
// Exit code: the number of the first step that failed.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

int main() {
  grpc::EnableDefaultHealthCheckService(true);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) return 1;

  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(10);
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
  if (!channel->WaitForConnected(deadline)) return 2;

  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(deadline);
  grpc::CompletionQueue queue;
  grpc::Slice nothing("");
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, &queue);
  void *tag = nullptr;
  bool ok = false;
  if (!queue.Next(&tag, &ok) || tag != &queue || !ok) return 3;
  if (!status.ok()) return 4;

  std::vector<grpc::Slice> slices;
  if (!answer.Dump(&slices).ok()) return 5;
  std::string bytes;
  for (const grpc::Slice &slice : slices) bytes.append(reinterpret_cast<const char *>(slice.begin()), slice.size());
  server->Shutdown();
  return bytes == "\x08\x01" ? 0 : 6; // HealthCheckResponse with status = SERVING
}
