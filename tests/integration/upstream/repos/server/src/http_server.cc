#include "http_server.h"

#include <b64/decode.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <evhtp/evhtp.h>
#include <re2/re2.h>
#include <sys/socket.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "classification.h"
#include "triton/common/logging.h"
#include "triton/common/triton_json.h"
namespace triton { namespace server {
namespace {

using rapidjson::Value;

TRITONSERVER_Error*
Bad(const std::string& text)
{
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text.c_str());
}

const Value*
Member(const Value& value, const char* name)
{
  if (!value.IsObject()) {
    return nullptr;
  }
  const auto found = value.FindMember(name);
  return found == value.MemberEnd() ? nullptr : &found->value;
}

// The number of a member, `absent` if there is none; what is no such number is refused.
TRITONSERVER_Error*
Number(const Value* parameters, const char* name, uint64_t absent, uint64_t* number)
{
  const Value* value = parameters ? Member(*parameters, name) : nullptr;
  *number = absent;
  if (value != nullptr) {
    if (!value->IsUint64()) {
      return Bad(std::string("'") + name + "' is no unsigned integer");
    }
    *number = value->GetUint64();
  }
  return nullptr;
}

template <class T>
bool
Append(const Value& value, std::string* bytes)
{
  T number;
  if constexpr (std::is_floating_point_v<T>) {
    if (!value.IsNumber()) return false;
    number = T(value.GetDouble());
  } else if constexpr (std::is_signed_v<T>) {
    if (!value.IsInt64()) return false;
    number = T(value.GetInt64());
  } else {
    if (!value.IsUint64() && !value.IsBool()) return false;
    number = value.IsBool() ? T(value.GetBool()) : T(value.GetUint64());
  }
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(number));
  return true;
}

bool
Pack(const Value& value, TRITONSERVER_DataType type, std::string* bytes)
{
  if (value.IsArray()) {
    for (const auto& each : value.GetArray()) {
      if (!Pack(each, type, bytes)) return false;
    }
    return true;
  }
  switch (type) {
    case TRITONSERVER_TYPE_BOOL:
    case TRITONSERVER_TYPE_UINT8: return Append<uint8_t>(value, bytes);
    case TRITONSERVER_TYPE_UINT16: return Append<uint16_t>(value, bytes);
    case TRITONSERVER_TYPE_UINT32: return Append<uint32_t>(value, bytes);
    case TRITONSERVER_TYPE_UINT64: return Append<uint64_t>(value, bytes);
    case TRITONSERVER_TYPE_INT8: return Append<int8_t>(value, bytes);
    case TRITONSERVER_TYPE_INT16: return Append<int16_t>(value, bytes);
    case TRITONSERVER_TYPE_INT32: return Append<int32_t>(value, bytes);
    case TRITONSERVER_TYPE_INT64: return Append<int64_t>(value, bytes);
    case TRITONSERVER_TYPE_FP32: return Append<float>(value, bytes);
    case TRITONSERVER_TYPE_FP64: return Append<double>(value, bytes);
    case TRITONSERVER_TYPE_BYTES: {
      if (!value.IsString()) return false;
      const uint32_t size = value.GetStringLength();
      bytes->append(reinterpret_cast<const char*>(&size), sizeof(size));
      bytes->append(value.GetString(), size);
      return true;
    }
    default: return false;
  }
}

template <class T>
void
Numbers(const void* base, size_t size, Value* array, rapidjson::Document& document)
{
  for (size_t at = 0; at + sizeof(T) <= size; at += sizeof(T)) {
    T number;
    memcpy(&number, static_cast<const char*>(base) + at, sizeof(T));
    if constexpr (std::is_same_v<T, bool>) {
      array->PushBack(Value(number), document.GetAllocator());
    } else if constexpr (std::is_floating_point_v<T>) {
      array->PushBack(Value(double(number)), document.GetAllocator());
    } else if constexpr (std::is_signed_v<T>) {
      array->PushBack(Value(int64_t(number)), document.GetAllocator());
    } else {
      array->PushBack(Value(uint64_t(number)), document.GetAllocator());
    }
  }
}

void
Unpack(const void* base, size_t size, TRITONSERVER_DataType type, Value* array, rapidjson::Document& document)
{
  switch (type) {
    case TRITONSERVER_TYPE_BOOL: Numbers<bool>(base, size, array, document); break;
    case TRITONSERVER_TYPE_UINT8: Numbers<uint8_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_UINT16: Numbers<uint16_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_UINT32: Numbers<uint32_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_UINT64: Numbers<uint64_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_INT8: Numbers<int8_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_INT16: Numbers<int16_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_INT32: Numbers<int32_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_INT64: Numbers<int64_t>(base, size, array, document); break;
    case TRITONSERVER_TYPE_FP32: Numbers<float>(base, size, array, document); break;
    case TRITONSERVER_TYPE_FP64: Numbers<double>(base, size, array, document); break;
    case TRITONSERVER_TYPE_BYTES: {
      const char* from = static_cast<const char*>(base);
      for (size_t at = 0; at + sizeof(uint32_t) <= size;) {
        uint32_t length;
        memcpy(&length, from + at, sizeof(length));
        at += sizeof(length);
        if (length > size - at) return;
        array->PushBack(Value(from + at, length, document.GetAllocator()), document.GetAllocator());
        at += length;
      }
      break;
    }
    default: break;
  }
}

// gzip and zlib, told by their heads.
TRITONSERVER_Error*
Inflate(const std::string& packed, std::string* plain)
{
  z_stream stream;
  memset(&stream, 0, sizeof(stream));
  if (inflateInit2(&stream, 15 + 32) != Z_OK) {
    return Bad("cannot decompress the body");
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = uInt(packed.size());
  int state = Z_OK;
  while (state == Z_OK) {
    char block[1 << 14];
    stream.next_out = reinterpret_cast<Bytef*>(block);
    stream.avail_out = sizeof(block);
    state = inflate(&stream, Z_NO_FLUSH);
    plain->append(block, sizeof(block) - stream.avail_out);
  }
  inflateEnd(&stream);
  return state == Z_STREAM_END ? nullptr : Bad("cannot decompress the body");
}

void
AddHeader(evhtp_request_t* req, const char* name, const std::string& value)
{
  evhtp_headers_add_header(req->headers_out, evhtp_header_new(name, value.c_str(), 1, 1));
}

void
Reply(evhtp_request_t* req, evhtp_res code, const std::string& body, const char* type = "application/json")
{
  AddHeader(req, "Content-Type", type);
  evbuffer_add(req->buffer_out, body.data(), body.size());
  evhtp_send_reply(req, code);
}

void
ReplyError(evhtp_request_t* req, TRITONSERVER_Error* error)
{
  int code = 400;
  const std::string text = ErrorText(error, &code);
  rapidjson::Document document(rapidjson::kObjectType);
  document.AddMember(
      "error", Value(text.data(), rapidjson::SizeType(text.size()), document.GetAllocator()), document.GetAllocator());
  Reply(req, evhtp_res(code), common::JsonText(document));
}

struct WantedOutput {
  bool binary = false;
  uint64_t classes = 0;
  bool shared = false;
  std::string region;
  uint64_t offset = 0, byte_size = 0;
  void* base = nullptr;
};

struct InferRequest;

// What is owed to a connection: lives from a request's arrival till all of its answer is written, or nobody wants it.
struct Owed {
  InferRequest* infer;
  std::function<void()> done;
};

// One inference between its arrival and its answer.
struct InferRequest {
  Owed* owed = nullptr;
  evhtp_request_t* req = nullptr;  // null when the connection went away; only its thread looks at it
  evthr_t* thread = nullptr;
  std::string body;
  std::list<std::string> packed;
  std::vector<std::shared_ptr<SharedMemoryRegion>> regions;
  std::map<std::string, WantedOutput> outputs;
  bool binary_by_default = false;
  TRITONSERVER_InferenceRequest* request = nullptr;
  TRITONSERVER_Error* error = nullptr;
  std::string head, tail;  // JSON and binary data
};

TRITONSERVER_Error*
Alloc(
    TRITONSERVER_ResponseAllocator*, const char* name, size_t byte_size, TRITONSERVER_MemoryType, int64_t, void* userp,
    void** buffer, void** buffer_userp, TRITONSERVER_MemoryType* type, int64_t* type_id)
{
  auto* infer = static_cast<InferRequest*>(userp);
  *type = TRITONSERVER_MEMORY_CPU;
  *type_id = 0;
  *buffer_userp = nullptr;
  const auto wanted = infer->outputs.find(name);
  if (wanted != infer->outputs.end() && wanted->second.shared) {
    if (byte_size > wanted->second.byte_size) {
      return Bad(std::string("shared memory size specified with the request for output '") + name + "' should be at least " +
                 std::to_string(byte_size) + " bytes");
    }
    *buffer = wanted->second.base;
    return nullptr;
  }
  *buffer = malloc(byte_size ? byte_size : 1);
  *buffer_userp = *buffer;
  return nullptr;
}

TRITONSERVER_Error*
Release(TRITONSERVER_ResponseAllocator*, void*, void* buffer_userp, size_t, TRITONSERVER_MemoryType, int64_t)
{
  free(buffer_userp);
  return nullptr;
}

TRITONSERVER_Error*
FillAnswer(InferRequest* infer, TRITONSERVER_InferenceResponse* response)
{
  RETURN_IF_ERR(TRITONSERVER_InferenceResponseError(response));
  rapidjson::Document document(rapidjson::kObjectType);
  auto& allocator = document.GetAllocator();
  const auto text = [&](const std::string& each) {
    return Value(each.data(), rapidjson::SizeType(each.size()), allocator);
  };
  const char *model = nullptr, *id = nullptr;
  int64_t version = 0;
  uint32_t count = 0;
  RETURN_IF_ERR(TRITONSERVER_InferenceResponseModel(response, &model, &version));
  RETURN_IF_ERR(TRITONSERVER_InferenceResponseId(response, &id));
  RETURN_IF_ERR(TRITONSERVER_InferenceResponseOutputCount(response, &count));
  if (*id != '\0') {
    document.AddMember("id", text(id), allocator);
  }
  document.AddMember("model_name", text(model), allocator);
  document.AddMember("model_version", text(std::to_string(version)), allocator);
  Value outputs(rapidjson::kArrayType);
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    TRITONSERVER_DataType type;
    const int64_t* shape = nullptr;
    uint64_t dims = 0;
    const void* base = nullptr;
    size_t size = 0;
    TRITONSERVER_MemoryType memory_type;
    int64_t memory_id = 0;
    void* userp = nullptr;
    RETURN_IF_ERR(TRITONSERVER_InferenceResponseOutput(
        response, i, &name, &type, &shape, &dims, &base, &size, &memory_type, &memory_id, &userp));
    WantedOutput wanted;
    wanted.binary = infer->binary_by_default;
    if (!infer->outputs.empty()) {
      const auto found = infer->outputs.find(name);
      if (found == infer->outputs.end()) {
        continue;
      }
      wanted = found->second;
    }
    Value output(rapidjson::kObjectType), dimensions(rapidjson::kArrayType), parameters(rapidjson::kObjectType);
    for (uint64_t d = 0; d < dims; ++d) {
      dimensions.PushBack(Value(shape[d]), allocator);
    }
    output.AddMember("name", text(name), allocator);
    output.AddMember("datatype", text(TRITONSERVER_DataTypeString(type)), allocator);
    output.AddMember("shape", dimensions, allocator);
    if (wanted.shared) {
      parameters.AddMember("shared_memory_region", text(wanted.region), allocator);
      parameters.AddMember("shared_memory_offset", Value(wanted.offset), allocator);
      parameters.AddMember("shared_memory_byte_size", Value(uint64_t(size)), allocator);
      output.AddMember("parameters", parameters, allocator);
    } else if (wanted.classes != 0 && type == TRITONSERVER_TYPE_FP32) {
      Value data(rapidjson::kArrayType);
      for (const auto& each :
           TopkClassifications(static_cast<const float*>(base), size / sizeof(float), wanted.classes)) {
        data.PushBack(text(each), allocator);
      }
      output["datatype"] = text("BYTES");
      output["shape"].Clear();
      output["shape"].PushBack(data.Size(), allocator);
      output.AddMember("data", data, allocator);
    } else if (wanted.binary) {
      parameters.AddMember("binary_data_size", Value(uint64_t(size)), allocator);
      output.AddMember("parameters", parameters, allocator);
      infer->tail.append(static_cast<const char*>(base), size);
    } else {
      Value data(rapidjson::kArrayType);
      Unpack(base, size, type, &data, document);
      output.AddMember("data", data, allocator);
    }
    outputs.PushBack(output, allocator);
  }
  document.AddMember("outputs", outputs, allocator);
  infer->head = common::JsonText(document);
  return nullptr;
}

// On the connection's thread.
void
SendAnswer(evthr_t*, void* arg, void*)
{
  std::unique_ptr<InferRequest> infer(static_cast<InferRequest*>(arg));
  evhtp_request_t* req = infer->req;
  if (req == nullptr) {
    if (infer->error != nullptr) {
      TRITONSERVER_ErrorDelete(infer->error);
    }
    return;
  }
  infer->owed->infer = nullptr;
  if (infer->error != nullptr) {
    ReplyError(req, infer->error);
  } else if (infer->tail.empty()) {
    Reply(req, 200, infer->head);
  } else {
    AddHeader(req, kInferHeaderContentLengthHTTPHeader, std::to_string(infer->head.size()));
    Reply(req, 200, infer->head + infer->tail, "application/octet-stream");
  }
  evhtp_request_resume(req);
}

void
ResponseComplete(TRITONSERVER_InferenceResponse* response, const uint32_t, void* userp)
{
  auto* infer = static_cast<InferRequest*>(userp);
  infer->error = FillAnswer(infer, response);
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceResponseDelete(response));
}

// Comes last: nobody reads the body any more.
void
RequestReleased(TRITONSERVER_InferenceRequest* request, const uint32_t, void* userp)
{
  auto* infer = static_cast<InferRequest*>(userp);
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(request));
  evthr_defer(infer->thread, SendAnswer, infer);
}

// The connection went away, or the answer is out.
evhtp_res
RequestGone(evhtp_request_t*, void* arg)
{
  std::unique_ptr<Owed> owed(static_cast<Owed*>(arg));
  if (owed->infer != nullptr) {
    owed->infer->req = nullptr;
  }
  owed->done();
  return EVHTP_RES_OK;
}

class HTTPAPIServer : public HTTPServer {
 public:
  // Without a manager it tells the metrics and nothing else.
  HTTPAPIServer(TRITONSERVER_Server* server, std::shared_ptr<SharedMemoryManager> shm_manager)
      : server_(server), shm_manager_(std::move(shm_manager))
  {
    TRITONSERVER_ErrorDelete(TRITONSERVER_ResponseAllocatorNew(&allocator_, Alloc, Release, nullptr));
  }
  ~HTTPAPIServer() override
  {
    Stop(0);
    TRITONSERVER_ErrorDelete(TRITONSERVER_ResponseAllocatorDelete(allocator_));
  }

  TRITONSERVER_Error* Start(const std::string& address, int port, bool reuse_port, int thread_cnt)
  {
    evthread_use_pthreads();
    evbase_ = event_base_new();
    htp_ = evhtp_new(evbase_, nullptr);
    if (reuse_port) {
      evhtp_enable_flag(htp_, EVHTP_FLAG_ENABLE_REUSEPORT);
    }
    evhtp_set_gencb(htp_, Dispatch, this);
    evhtp_use_threads_wexit(htp_, nullptr, nullptr, thread_cnt, nullptr);
    if (evhtp_bind_socket(htp_, address.c_str(), uint16_t(port), 1024) != 0) {
      return TRITONSERVER_ErrorNew(
          TRITONSERVER_ERROR_UNAVAILABLE,
          ("Socket '" + address + ":" + std::to_string(port) + "' already in use").c_str());
    }
    evutil_socketpair(AF_UNIX, SOCK_STREAM, 0, fds_);
    evutil_make_socket_nonblocking(fds_[1]);
    break_ev_ = event_new(evbase_, fds_[1], EV_READ | EV_PERSIST, StopCallback, this);
    event_add(break_ev_, nullptr);
    worker_ = std::thread(event_base_loop, evbase_, 0);
    LOG_INFO << "Started HTTPService at " << address << ":" << port;
    return nullptr;
  }

  void Stop(int exit_timeout_secs) override
  {
    if (!worker_.joinable()) {
      return;
    }
    Tell('u');
    {
      std::unique_lock<std::mutex> lock(mu_);
      idle_.wait_for(lock, std::chrono::seconds(exit_timeout_secs), [this] { return running_ == 0; });
    }
    Tell('x');
    worker_.join();
    event_free(break_ev_);
    evutil_closesocket(fds_[0]);
    evutil_closesocket(fds_[1]);
    evhtp_free(htp_);
    event_base_free(evbase_);
  }

 private:
  void Tell(char what)
  {
    if (send(fds_[0], &what, 1, 0) != 1) {
      LOG_ERROR << "cannot reach the HTTP thread";
    }
  }

  static void StopCallback(evutil_socket_t sock, short, void* arg)
  {
    auto* self = static_cast<HTTPAPIServer*>(arg);
    char what;
    while (recv(sock, &what, 1, 0) == 1) {
      if (what == 'u') {
        evhtp_unbind_socket(self->htp_);
      } else {
        event_base_loopbreak(self->evbase_);
      }
    }
  }

  static void Dispatch(evhtp_request_t* req, void* arg)
  {
    auto* self = static_cast<HTTPAPIServer*>(arg);
    self->shm_manager_ ? self->Handle(req) : self->HandleMetrics(req);
  }

  void Begin()
  {
    std::lock_guard<std::mutex> lock(mu_);
    ++running_;
  }
  void Finish()
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (--running_ == 0) {
      idle_.notify_all();
    }
  }
  void Handle(evhtp_request_t* req)
  {
    const std::string path(req->uri->path->full);
    std::string name, version, action, kind;
    const htp_method method = evhtp_request_get_method(req);
    if (method != htp_method_GET && method != htp_method_POST) {
      evhtp_send_reply(req, EVHTP_RES_METHNALLOWED);
      return;
    }
    static const re2::RE2 model_re(R"(/v2/models/([^/]+)(?:/versions/([0-9]+))?(?:/(infer|ready|config|stats))?)");
    static const re2::RE2 load_re(R"(/v2/repository/models/([^/]+)/(load|unload))");
    static const re2::RE2 shm_re(R"(/v2/(system|cuda)sharedmemory(?:/region/([^/]+))?/(status|register|unregister))");
    if (path == "/v2/health/live") {
      Health(req, TRITONSERVER_ServerIsLive);
    } else if (path == "/v2/health/ready") {
      Health(req, TRITONSERVER_ServerIsReady);
    } else if (path == "/v2" || path == "/v2/") {
      Answer(req, [&](TRITONSERVER_Message** message) { return TRITONSERVER_ServerMetadata(server_, message); });
    } else if (path == "/v2/repository/index") {
      Answer(req, [&](TRITONSERVER_Message** message) { return TRITONSERVER_ServerModelIndex(server_, 0, message); });
    } else if (path == "/v2/models/stats") {
      Answer(req, [&](auto** message) { return TRITONSERVER_ServerModelStatistics(server_, "", -1, message); });
    } else if (re2::RE2::FullMatch(path, load_re, &name, &action)) {
      HandleLoad(req, name, action);
    } else if (re2::RE2::FullMatch(path, model_re, &name, &version, &action)) {
      HandleModel(req, name, version.empty() ? -1 : atoll(version.c_str()), action);
    } else if (re2::RE2::FullMatch(path, shm_re, &kind, &name, &action)) {
      HandleSharedMemory(req, kind == "cuda", name, action);
    } else {
      ReplyError(req, TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "Not Found"));
    }
  }

  void Health(evhtp_request_t* req, TRITONSERVER_Error* (*ask)(TRITONSERVER_Server*, bool*))
  {
    bool fine = false;
    if (TRITONSERVER_Error* error = ask(server_, &fine)) {
      TRITONSERVER_ErrorDelete(error);
    }
    evhtp_send_reply(req, fine ? 200 : 400);
  }

  template <class Ask>
  void Answer(evhtp_request_t* req, Ask ask)
  {
    TRITONSERVER_Message* message = nullptr;
    if (TRITONSERVER_Error* error = ask(&message)) {
      ReplyError(req, error);
      return;
    }
    const char* base = nullptr;
    size_t size = 0;
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
    Reply(req, 200, std::string(base, size));
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(message));
  }

  void HandleLoad(evhtp_request_t* req, const std::string& name, const std::string& action)
  {
    const auto call = action == "load" ? TRITONSERVER_ServerLoadModel : TRITONSERVER_ServerUnloadModel;
    if (TRITONSERVER_Error* error = call(server_, name.c_str())) {
      ReplyError(req, error);
    } else {
      Reply(req, 200, "");
    }
  }

  void HandleMetrics(evhtp_request_t* req)
  {
    if (strcmp(req->uri->path->full, "/metrics") != 0) {
      Reply(req, 404, "", "text/plain; charset=utf-8");
      return;
    }
    TRITONSERVER_Metrics* metrics = nullptr;
    const char* base = nullptr;
    size_t size = 0;
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerMetrics(server_, &metrics));
    TRITONSERVER_ErrorDelete(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size));
    Reply(req, 200, std::string(base, size), "text/plain; charset=utf-8");
    TRITONSERVER_ErrorDelete(TRITONSERVER_MetricsDelete(metrics));
  }

  void HandleModel(evhtp_request_t* req, const std::string& name, int64_t version, const std::string& action)
  {
    if (action == "ready") {
      bool ready = false;
      TRITONSERVER_ErrorDelete(TRITONSERVER_ServerModelIsReady(server_, name.c_str(), version, &ready));
      evhtp_send_reply(req, ready ? 200 : 400);
    } else if (action == "config") {
      Answer(req, [&](auto** to) { return TRITONSERVER_ServerModelConfig(server_, name.c_str(), version, 1, to); });
    } else if (action == "stats") {
      Answer(req, [&](auto** to) { return TRITONSERVER_ServerModelStatistics(server_, name.c_str(), version, to); });
    } else if (action.empty()) {
      Answer(req, [&](auto** to) { return TRITONSERVER_ServerModelMetadata(server_, name.c_str(), version, to); });
    } else {
      HandleInfer(req, name, version);
    }
  }

  static std::string Body(evhtp_request_t* req)
  {
    std::string body(evbuffer_get_length(req->buffer_in), '\0');
    evbuffer_copyout(req->buffer_in, body.data(), body.size());
    return body;
  }

  void HandleSharedMemory(evhtp_request_t* req, bool cuda, const std::string& name, const std::string& action)
  {
    TRITONSERVER_Error* error = nullptr;
    std::string answer;
    if (action == "status") {
      error = cuda ? nullptr : shm_manager_->GetStatus(name, &answer);
      answer = cuda ? "[]" : answer;
    } else if (action == "unregister") {
      if (!cuda) {
        if (name.empty()) {
          shm_manager_->UnregisterAll();
        } else {
          error = shm_manager_->Unregister(name);
        }
      }
    } else {
      error = cuda ? RegisterCuda(Body(req)) : RegisterSystem(name, Body(req));
    }
    if (error != nullptr) {
      ReplyError(req, error);
    } else {
      Reply(req, 200, answer);
    }
  }

  TRITONSERVER_Error* RegisterSystem(const std::string& name, const std::string& body)
  {
    rapidjson::Document document;
    document.Parse(body.data(), body.size());
    const Value* key = document.HasParseError() ? nullptr : Member(document, "key");
    if (key == nullptr || !key->IsString()) {
      return Bad("'key' is missing");
    }
    uint64_t offset = 0, byte_size = 0;
    RETURN_IF_ERR(Number(&document, "offset", 0, &offset));
    RETURN_IF_ERR(Number(&document, "byte_size", 0, &byte_size));
    return shm_manager_->RegisterSystemSharedMemory(name, key->GetString(), offset, byte_size);
  }

  TRITONSERVER_Error* RegisterCuda(const std::string& body)
  {
    rapidjson::Document document;
    document.Parse(body.data(), body.size());
    const Value* raw = document.HasParseError() ? nullptr : Member(document, "raw_handle");
    const Value* text = raw ? Member(*raw, "b64") : nullptr;
    if (text == nullptr || !text->IsString()) {
      return Bad("'raw_handle' is missing");
    }
    base64::decoder decoder;
    base64_init_decodestate(&decoder._state);
    std::string handle(text->GetStringLength(), '\0');
    handle.resize(size_t(decoder.decode(text->GetString(), int(text->GetStringLength()), handle.data())));
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_UNSUPPORTED,
        ("no GPU for the handle of " + std::to_string(handle.size()) + " bytes").c_str());
  }

  void HandleInfer(evhtp_request_t* req, const std::string& name, int64_t version)
  {
    if (evhtp_request_get_method(req) != htp_method_POST) {
      evhtp_send_reply(req, EVHTP_RES_METHNALLOWED);
      return;
    }
    auto infer = std::make_unique<InferRequest>();
    infer->req = req;
    infer->thread = req->conn->thread;
    infer->body = Body(req);
    TRITONSERVER_Error* error = Prepare(req, name, version, infer.get());
    if (error == nullptr) {
      Begin();
      infer->owed = new Owed{infer.get(), [this] { Finish(); }};
      evhtp_request_set_hook(req, evhtp_hook_on_request_fini, (evhtp_hook)(void*)RequestGone, infer->owed);
      evhtp_request_pause(req);
      error = TRITONSERVER_ServerInferAsync(server_, infer->request, nullptr);
      if (error == nullptr) {
        infer.release();
        return;
      }
      infer->owed->infer = nullptr;
      ReplyError(req, error);
      evhtp_request_resume(req);
    } else {
      ReplyError(req, error);
    }
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(infer->request));
  }

  TRITONSERVER_Error* Prepare(evhtp_request_t* req, const std::string& name, int64_t version, InferRequest* infer)
  {
    RETURN_IF_ERR(TRITONSERVER_InferenceRequestNew(&infer->request, server_, name.c_str(), version));
    if (evhtp_kv_find(req->headers_in, "Content-Encoding") != nullptr) {
      std::string plain;
      RETURN_IF_ERR(Inflate(infer->body, &plain));
      infer->body.swap(plain);
    }
    size_t head = infer->body.size();
    if (const char* text = evhtp_kv_find(req->headers_in, kInferHeaderContentLengthHTTPHeader)) {
      head = strtoull(text, nullptr, 10);
    }
    if (head > infer->body.size()) {
      return Bad("the header's length is longer than the body");
    }
    rapidjson::Document document;
    document.Parse(infer->body.data(), head);
    if (document.HasParseError() || !document.IsObject()) {
      return Bad("failed to parse the request JSON buffer");
    }
    if (const Value* id = Member(document, "id"); id != nullptr && id->IsString()) {
      RETURN_IF_ERR(TRITONSERVER_InferenceRequestSetId(infer->request, id->GetString()));
    }
    if (const Value* parameters = Member(document, "parameters")) {
      const Value* binary = Member(*parameters, "binary_data_output");
      infer->binary_by_default = binary != nullptr && binary->IsBool() && binary->GetBool();
    }
    const Value* inputs = Member(document, "inputs");
    if (inputs == nullptr || !inputs->IsArray()) {
      return Bad("'inputs' is missing");
    }
    for (const auto& each : inputs->GetArray()) {
      RETURN_IF_ERR(AddInput(each, &head, infer));
    }
    if (head != infer->body.size()) {
      return Bad("unexpected additional input data");
    }
    if (const Value* outputs = Member(document, "outputs"); outputs != nullptr && outputs->IsArray()) {
      for (const auto& each : outputs->GetArray()) {
        RETURN_IF_ERR(AddOutput(each, infer));
      }
    }
    RETURN_IF_ERR(TRITONSERVER_InferenceRequestSetReleaseCallback(infer->request, RequestReleased, infer));
    return TRITONSERVER_InferenceRequestSetResponseCallback(
        infer->request, allocator_, infer, ResponseComplete, infer);
  }

  TRITONSERVER_Error* AddInput(const Value& input, size_t* at, InferRequest* infer)
  {
    const Value* name = Member(input, "name");
    const Value* type_name = Member(input, "datatype");
    const Value* shape = Member(input, "shape");
    if (name == nullptr || !name->IsString() || type_name == nullptr || !type_name->IsString() || shape == nullptr ||
        !shape->IsArray()) {
      return Bad("an input needs name, datatype and shape");
    }
    std::vector<int64_t> dims;
    for (const auto& each : shape->GetArray()) {
      if (!each.IsInt64() || each.GetInt64() < 0) {
        return Bad("a shape has integers from 0 on");
      }
      dims.push_back(each.GetInt64());
    }
    const auto type = TRITONSERVER_StringToDataType(type_name->GetString());
    RETURN_IF_ERR(TRITONSERVER_InferenceRequestAddInput(
        infer->request, name->GetString(), type, dims.data(), dims.size()));
    const Value* parameters = Member(input, "parameters");
    const Value* region = parameters ? Member(*parameters, "shared_memory_region") : nullptr;
    const void* base = nullptr;
    uint64_t size = 0;
    if (region != nullptr && region->IsString()) {
      uint64_t offset = 0;
      void* mapped = nullptr;
      RETURN_IF_ERR(Number(parameters, "shared_memory_byte_size", 0, &size));
      RETURN_IF_ERR(Number(parameters, "shared_memory_offset", 0, &offset));
      RETURN_IF_ERR(
          shm_manager_->GetMemoryInfo(region->GetString(), offset, size, &mapped, &infer->regions.emplace_back()));
      base = mapped;
    } else if (parameters != nullptr && Member(*parameters, "binary_data_size") != nullptr) {
      RETURN_IF_ERR(Number(parameters, "binary_data_size", 0, &size));
      if (size > infer->body.size() - *at) {
        return Bad("unexpected end of the binary data");
      }
      base = infer->body.data() + *at;
      *at += size;
    } else {
      const Value* data = Member(input, "data");
      auto& packed = infer->packed.emplace_back();
      if (data == nullptr || !Pack(*data, type, &packed)) {
        return Bad(std::string("cannot read the data of input '") + name->GetString() + "'");
      }
      base = packed.data();
      size = packed.size();
    }
    return TRITONSERVER_InferenceRequestAppendInputData(
        infer->request, name->GetString(), base, size, TRITONSERVER_MEMORY_CPU, 0);
  }

  TRITONSERVER_Error* AddOutput(const Value& output, InferRequest* infer)
  {
    const Value* name = Member(output, "name");
    if (name == nullptr || !name->IsString()) {
      return Bad("an output needs a name");
    }
    WantedOutput wanted;
    wanted.binary = infer->binary_by_default;
    if (const Value* parameters = Member(output, "parameters")) {
      if (const Value* binary = Member(*parameters, "binary_data"); binary != nullptr && binary->IsBool()) {
        wanted.binary = binary->GetBool();
      }
      RETURN_IF_ERR(Number(parameters, "classification", 0, &wanted.classes));
      if (const Value* region = Member(*parameters, "shared_memory_region"); region != nullptr && region->IsString()) {
        wanted.shared = true;
        wanted.region = region->GetString();
        RETURN_IF_ERR(Number(parameters, "shared_memory_byte_size", 0, &wanted.byte_size));
        RETURN_IF_ERR(Number(parameters, "shared_memory_offset", 0, &wanted.offset));
        RETURN_IF_ERR(shm_manager_->GetMemoryInfo(
            wanted.region, wanted.offset, wanted.byte_size, &wanted.base, &infer->regions.emplace_back()));
      }
    }
    infer->outputs[name->GetString()] = wanted;
    return TRITONSERVER_InferenceRequestAddRequestedOutput(infer->request, name->GetString());
  }

  TRITONSERVER_Server* server_;
  std::shared_ptr<SharedMemoryManager> shm_manager_;
  TRITONSERVER_ResponseAllocator* allocator_ = nullptr;
  evhtp_t* htp_ = nullptr;
  event_base* evbase_ = nullptr;
  event* break_ev_ = nullptr;
  evutil_socket_t fds_[2];
  std::thread worker_;
  std::mutex mu_;
  std::condition_variable idle_;
  int running_ = 0;
};

}  // namespace

TRITONSERVER_Error*
HTTPServer::CreateAPIServer(
    TRITONSERVER_Server* server, const std::shared_ptr<SharedMemoryManager>& shm_manager, const std::string& address,
    int port, bool reuse_port, int thread_cnt, std::unique_ptr<HTTPServer>* http)
{
  auto made = std::make_unique<HTTPAPIServer>(server, shm_manager);
  RETURN_IF_ERR(made->Start(address, port, reuse_port, thread_cnt));
  *http = std::move(made);
  return nullptr;
}

TRITONSERVER_Error*
HTTPServer::CreateMetricsServer(
    TRITONSERVER_Server* server, const std::string& address, int port, std::unique_ptr<HTTPServer>* http)
{
  return CreateAPIServer(server, nullptr, address, port, false, 1, http);
}

}}  // namespace triton::server
