#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "triton/core/tritonbackend.h"
namespace triton { namespace core {

class Model;

struct Buffer {
  const void* base;
  size_t size;
};

struct Input {
  std::string name;
  TRITONSERVER_DataType type;
  std::vector<int64_t> shape;
  std::vector<Buffer> buffers;
  uint64_t ByteSize() const
  {
    uint64_t sum = 0;
    for (const auto& each : buffers) {
      sum += each.size;
    }
    return sum;
  }
};

struct Request {
  std::shared_ptr<Model> model;
  std::string id;
  std::deque<Input> inputs;
  std::vector<std::string> outputs;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  TRITONSERVER_InferenceResponseCompleteFn_t response_fn = nullptr;
  void* response_userp = nullptr;
  TRITONSERVER_InferenceRequestReleaseFn_t release_fn = nullptr;
  void* release_userp = nullptr;
  void Release();
};

struct Output {
  struct Response* response = nullptr;
  std::string name;
  TRITONSERVER_DataType type;
  std::vector<int64_t> shape;
  void* base = nullptr;
  size_t size = 0;
  void* userp = nullptr;
};

struct Allocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn;
  TRITONSERVER_ResponseAllocatorStartFn_t start_fn;
};

struct Response {
  std::shared_ptr<Model> model;
  std::string id;
  std::deque<Output> outputs;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  const Request* request = nullptr;  // until the response is sent
  TRITONSERVER_InferenceResponseCompleteFn_t response_fn = nullptr;
  void* response_userp = nullptr;
  TRITONSERVER_Error* error = nullptr;
  explicit Response(const Request& request);
  ~Response();
  void* Allocate(Output* output, size_t size, TRITONSERVER_Error** error);
};

inline Request* Of(TRITONSERVER_InferenceRequest* each) { return reinterpret_cast<Request*>(each); }
inline Request* Of(TRITONBACKEND_Request* each) { return reinterpret_cast<Request*>(each); }
inline Response* Of(TRITONSERVER_InferenceResponse* each) { return reinterpret_cast<Response*>(each); }
inline Response* Of(TRITONBACKEND_Response* each) { return reinterpret_cast<Response*>(each); }
inline Input* Of(TRITONBACKEND_Input* each) { return reinterpret_cast<Input*>(each); }
inline Output* Of(TRITONBACKEND_Output* each) { return reinterpret_cast<Output*>(each); }
inline Allocator* Of(TRITONSERVER_ResponseAllocator* each) { return reinterpret_cast<Allocator*>(each); }

}}  // namespace triton::core
