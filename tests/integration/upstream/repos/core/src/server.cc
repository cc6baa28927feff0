#include "server.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "cache_manager.h"
#include "filesystem/api.h"
#include "metrics.h"
#include "repo_agent.h"
#include "triton/common/async_work_queue.h"
#include "triton/common/logging.h"
#include "triton/common/table_printer.h"
#include "triton/common/triton_json.h"
namespace triton { namespace core {
namespace {

rapidjson::Value
Text(const std::string& text, rapidjson::Document& document)
{
  return rapidjson::Value(text.c_str(), rapidjson::SizeType(text.size()), document.GetAllocator());
}

template <class Dims>
std::string
ShapeText(const Dims& dims, bool batch)
{
  std::string text = batch ? "-1" : "";
  for (const int64_t each : dims) {
    text += (text.empty() ? "" : ",") + std::to_string(each);
  }
  return "[" + text + "]";
}

TRITONSERVER_Error*
CheckShape(const inference::ModelTensor& known, const Input& input, int most, const std::string& model)
{
  const bool batch = most > 0;
  const auto& dims = known.dims();
  bool fits = input.shape.size() == size_t(dims.size()) + batch;
  for (int i = 0; fits && i < dims.size(); ++i) {
    fits = dims[i] == -1 || dims[i] == input.shape[size_t(i) + batch];
  }
  if (!fits) {
    return NewError(
        TRITONSERVER_ERROR_INVALID_ARG, "unexpected shape for input '" + input.name + "' for model '" + model +
                                            "'. Expected " + ShapeText(dims, batch) + ", got " +
                                            ShapeText(input.shape, false));
  }
  if (batch && input.shape[0] > most) {
    return NewError(
        TRITONSERVER_ERROR_INVALID_ARG,
        "inference request batch-size must be <= " + std::to_string(most) + " for '" + model + "'");
  }
  return nullptr;
}

// Ends a model when all its requests are gone: the last of them is let go by a thread of the model, which cannot join itself.
void
End(std::shared_ptr<Model> model)
{
  while (model.use_count() > 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What a request's release tells besides the caller's.
struct Running {
  Server* server;
  TRITONSERVER_InferenceRequestReleaseFn_t release_fn;
  void* userp;
};

void
Released(TRITONSERVER_InferenceRequest* request, const uint32_t flags, void* userp)
{
  std::unique_ptr<Running> running(static_cast<Running*>(userp));
  running->release_fn(request, flags, running->userp);
  running->server->Done();
}

}  // namespace

Server::~Server()
{
  for (auto& [name, model] : models_) {
    End(std::move(model));
  }
  models_.clear();
  backends_.clear();
}

TRITONSERVER_Error*
Server::Init()
{
  common::AsyncWorkQueue::Initialize(2);
  for (const auto& each : options_.caches) {
    RETURN_IF_ERROR(LoadCache(options_.cache_directory, each));
  }
  std::vector<std::vector<std::string>> table{{"Model", "Version", "Status"}};
  for (const auto& repository : options_.repositories) {
    if (!IsDirectory(repository)) {
      return NewError(TRITONSERVER_ERROR_NOT_FOUND, "no model repository at '" + repository + "'");
    }
    for (const auto& name : GetDirectorySubdirs(repository)) {
      const bool wanted = options_.control != TRITONSERVER_MODEL_CONTROL_EXPLICIT ||
                          options_.startup_models.count(name) != 0 || options_.startup_models.count("*") != 0;
      if (!wanted || models_.count(name) != 0) {
        continue;
      }
      if (TRITONSERVER_Error* error = Create(name)) {
        TRITONSERVER_ErrorDelete(error);
        table.push_back({name, "1", "UNAVAILABLE"});
      } else {
        table.push_back({name, std::to_string(models_[name]->version), "READY"});
      }
    }
  }
  LOG_INFO << "models\n" << common::PrintTable(table);
  ready_ = failures_.empty() || !options_.strict_readiness;
  return nullptr;
}

TRITONSERVER_Error*
Server::Create(const std::string& name)
{
  std::shared_ptr<Model> model;
  TRITONSERVER_Error* error = nullptr;
  const auto holder = std::find_if(options_.repositories.begin(), options_.repositories.end(), [&](const auto& each) {
    return IsDirectory(JoinPath({each, name}));
  });
  if (name.empty() || name.find('/') != std::string::npos || holder == options_.repositories.end()) {
    error = NewError(TRITONSERVER_ERROR_INVALID_ARG, "no model repository has '" + name + "'");
  } else {
    const std::string folder = JoinPath({*holder, name});
    const Model::Places places{options_.backend_directory, options_.repoagent_directory};
    error = Model::Create(folder, places, !options_.caches.empty(), &backends_, &model);
    loaded_at_[name] = FileModificationTime(folder);
  }
  if (error != nullptr) {
    failures_[name] = TRITONSERVER_ErrorMessage(error);
    LOG_ERROR << "failed to load '" << name << "': " << failures_[name];
    return error;
  }
  failures_.erase(name);
  models_[name] = std::move(model);
  return nullptr;
}

TRITONSERVER_Error*
Server::CheckControl() const
{
  if (options_.control != TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    return NewError(
        TRITONSERVER_ERROR_UNAVAILABLE, "explicit model load / unload is not allowed if polling is enabled");
  }
  return nullptr;
}

TRITONSERVER_Error*
Server::Load(const std::string& name)
{
  RETURN_IF_ERROR(CheckControl());
  std::unique_lock<std::mutex> lock(mu_);
  const auto found = models_.find(name);
  std::shared_ptr<Model> before = found != models_.end() ? found->second : nullptr;
  if (TRITONSERVER_Error* error = Create(name)) {
    const std::string text = "failed to load '" + name + "', " + TRITONSERVER_ErrorMessage(error);
    TRITONSERVER_ErrorDelete(error);
    return NewError(TRITONSERVER_ERROR_INVALID_ARG, text);
  }
  lock.unlock();
  End(std::move(before));
  return nullptr;
}

TRITONSERVER_Error*
Server::Unload(const std::string& name)
{
  RETURN_IF_ERROR(CheckControl());
  std::shared_ptr<Model> before;
  std::unique_lock<std::mutex> lock(mu_);
  const auto found = models_.find(name);
  if (found != models_.end()) {
    before = std::move(found->second);
    models_.erase(found);
    failures_[name] = "unloaded";
  }
  lock.unlock();
  End(std::move(before));
  return nullptr;
}

TRITONSERVER_Error*
Server::Stop()
{
  std::unique_lock<std::mutex> lock(mu_);
  stopping_ = true;
  ready_ = false;
  LOG_INFO << "waiting for " << running_ << " requests";
  if (!idle_.wait_for(lock, std::chrono::seconds(options_.exit_timeout), [this] { return running_ == 0; })) {
    return NewError(
        TRITONSERVER_ERROR_INTERNAL, "exit timeout expired with " + std::to_string(running_) + " requests in flight");
  }
  return nullptr;
}

bool
Server::IsReady()
{
  std::lock_guard<std::mutex> lock(mu_);
  return ready_;
}

TRITONSERVER_Error*
Server::Find(const std::string& name, int64_t version, std::shared_ptr<Model>* model)
{
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = models_.find(name);
  if (found == models_.end() || (version != -1 && uint64_t(version) != found->second->version)) {
    return NewError(TRITONSERVER_ERROR_NOT_FOUND, "Request for unknown model: '" + name + "' is not found");
  }
  *model = found->second;
  return nullptr;
}

TRITONSERVER_Error*
Server::Infer(Request* request)
{
  const auto& config = request->model->config;
  if (request->inputs.size() != size_t(config.input_size())) {
    return NewError(
        TRITONSERVER_ERROR_INVALID_ARG, "expected " + std::to_string(config.input_size()) + " inputs but got " +
                                            std::to_string(request->inputs.size()) + " inputs for model '" +
                                            request->model->name + "'");
  }
  for (const auto& input : request->inputs) {
    const auto known = std::find_if(config.input().begin(), config.input().end(), [&](const auto& each) {
      return each.name() == input.name;
    });
    if (known == config.input().end()) {
      return NewError(
          TRITONSERVER_ERROR_INVALID_ARG,
          "unexpected inference input '" + input.name + "' for model '" + request->model->name + "'");
    }
    if (input.type != TRITONSERVER_StringToDataType(common::DataTypeToProtocolString(known->data_type()))) {
      return NewError(
          TRITONSERVER_ERROR_INVALID_ARG, "inference input '" + input.name + "' data-type is '" +
                                              TRITONSERVER_DataTypeString(input.type) + "', but model '" +
                                              request->model->name + "' expects '" +
                                              common::DataTypeToProtocolString(known->data_type()) + "'");
    }
    RETURN_IF_ERROR(CheckShape(*known, input, config.max_batch_size(), request->model->name));
    const size_t size = TRITONSERVER_DataTypeByteSize(input.type);
    uint64_t count = 1;
    for (const int64_t each : input.shape) {
      count *= uint64_t(each);
    }
    if (size != 0 && input.ByteSize() != count * size) {
      return NewError(
          TRITONSERVER_ERROR_INVALID_ARG, "input byte size mismatch for input '" + input.name + "' for model '" +
                                              request->model->name + "'. Expected " + std::to_string(count * size) +
                                              ", got " + std::to_string(input.ByteSize()));
    }
  }
  for (const auto& name : request->outputs) {
    if (std::none_of(config.output().begin(), config.output().end(), [&](const auto& each) {
          return each.name() == name;
        })) {
      return NewError(
          TRITONSERVER_ERROR_INVALID_ARG,
          "unexpected inference output '" + name + "' for model '" + request->model->name + "'");
    }
  }
  if (request->outputs.empty()) {
    for (const auto& each : config.output()) {
      request->outputs.push_back(each.name());
    }
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (stopping_ || models_.empty()) {
      return NewError(TRITONSERVER_ERROR_UNAVAILABLE, "the server is stopping and takes no new requests");
    }
    ++running_;
  }
  request->release_userp = new Running{this, request->release_fn, request->release_userp};
  request->release_fn = Released;
  if (!request->model->AnswerFromCache(request)) {
    request->model->scheduler->Enqueue(request);
  }
  return nullptr;
}

void
Server::Done()
{
  std::lock_guard<std::mutex> lock(mu_);
  if (--running_ == 0) {
    idle_.notify_all();
  }
}

std::string
Server::Metadata() const
{
  rapidjson::Document document(rapidjson::kObjectType);
  auto& allocator = document.GetAllocator();
  document.AddMember("name", Text(options_.id, document), allocator);
  document.AddMember("version", Text(TRITON_VERSION, document), allocator);
  rapidjson::Value extensions(rapidjson::kArrayType);
  for (const char* each :
       {"model_repository", "model_configuration", "system_shared_memory", "binary_tensor_data", "statistics"}) {
    extensions.PushBack(Text(each, document), allocator);
  }
  document.AddMember("extensions", extensions, allocator);
  return common::JsonText(document);
}

std::string
Server::ModelMetadata(const Model& model) const
{
  rapidjson::Document document(rapidjson::kObjectType);
  auto& allocator = document.GetAllocator();
  document.AddMember("name", Text(model.name, document), allocator);
  rapidjson::Value versions(rapidjson::kArrayType);
  versions.PushBack(Text(std::to_string(model.version), document), allocator);
  document.AddMember("versions", versions, allocator);
  document.AddMember("platform", Text(model.config.platform(), document), allocator);
  const auto tensors = [&](const auto& list) {
    rapidjson::Value all(rapidjson::kArrayType);
    for (const auto& each : list) {
      rapidjson::Value one(rapidjson::kObjectType);
      one.AddMember("name", Text(each.name(), document), allocator);
      one.AddMember("datatype", Text(common::DataTypeToProtocolString(each.data_type()), document), allocator);
      rapidjson::Value shape(rapidjson::kArrayType);
      if (model.config.max_batch_size() > 0) {
        shape.PushBack(-1, allocator);
      }
      for (const int64_t dim : each.dims()) {
        shape.PushBack(rapidjson::Value(dim), allocator);
      }
      one.AddMember("shape", shape, allocator);
      all.PushBack(one, allocator);
    }
    return all;
  };
  document.AddMember("inputs", tensors(model.config.input()), allocator);
  document.AddMember("outputs", tensors(model.config.output()), allocator);
  return common::JsonText(document);
}

std::string
Server::Index()
{
  std::lock_guard<std::mutex> lock(mu_);
  rapidjson::Document document(rapidjson::kArrayType);
  auto& allocator = document.GetAllocator();
  const auto add = [&](const std::string& name, uint64_t version, const char* state, const std::string& reason) {
    rapidjson::Value one(rapidjson::kObjectType);
    one.AddMember("name", Text(name, document), allocator);
    one.AddMember("version", Text(std::to_string(version), document), allocator);
    one.AddMember("state", Text(state, document), allocator);
    one.AddMember("reason", Text(reason, document), allocator);
    document.PushBack(one, allocator);
  };
  for (const auto& [name, model] : models_) {
    add(name, model->version, "READY", "");
  }
  for (const auto& [name, reason] : failures_) {
    add(name, 1, "UNAVAILABLE", reason);
  }
  for (const auto& repository : options_.repositories) {
    for (const auto& name : GetDirectorySubdirs(repository)) {
      if (models_.count(name) == 0 && failures_.count(name) == 0) {
        rapidjson::Value one(rapidjson::kObjectType);
        one.AddMember("name", Text(name, document), allocator);
        document.PushBack(one, allocator);
      }
    }
  }
  return common::JsonText(document);
}

std::string
Server::Statistics(const std::string& name)
{
  std::lock_guard<std::mutex> lock(mu_);
  rapidjson::Document document(rapidjson::kObjectType);
  auto& allocator = document.GetAllocator();
  rapidjson::Value all(rapidjson::kArrayType);
  for (const auto& [each, model] : models_) {
    if (!name.empty() && name != each) {
      continue;
    }
    rapidjson::Value one(rapidjson::kObjectType);
    one.AddMember("name", Text(each, document), allocator);
    one.AddMember("version", Text(std::to_string(model->version), document), allocator);
    one.AddMember("inference_count", rapidjson::Value(model->rows.load()), allocator);
    one.AddMember("execution_count", rapidjson::Value(model->batches.load()), allocator);
    rapidjson::Value times(rapidjson::kObjectType);
    const auto add = [&](const char* key, uint64_t count, uint64_t ns) {
      rapidjson::Value pair(rapidjson::kObjectType);
      pair.AddMember("count", rapidjson::Value(count), allocator);
      pair.AddMember("ns", rapidjson::Value(ns), allocator);
      times.AddMember(rapidjson::StringRef(key), pair, allocator);
    };
    add("success", model->succeeded, model->succeeded_ns);
    add("fail", model->failed, model->failed_ns);
    one.AddMember("inference_stats", times, allocator);
    all.PushBack(one, allocator);
  }
  document.AddMember("model_stats", all, allocator);
  return common::JsonText(document);
}

}}  // namespace triton::core
