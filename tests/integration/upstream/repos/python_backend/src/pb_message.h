// Requests and responses as bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
namespace triton { namespace backend { namespace python {

struct TensorData {
  std::string name;
  std::string dtype;  // as FP32
  std::vector<int64_t> shape;
  std::string bytes;
};

// One request or response: tensors, or what went wrong.
struct Batch {
  std::vector<TensorData> tensors;
  std::vector<std::string> requested;
  std::string error;
};

class Writer {
 public:
  void Number(uint64_t number);
  void Text(const std::string& text);
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes, size_t position = 0) : bytes_(bytes), position_(position) {}
  uint64_t Number();
  std::string Text();

 private:
  const std::string& bytes_;
  size_t position_;
};

// The kind of message comes first; it is not looked at here.
std::string Encode(char kind, const std::vector<Batch>& batches);
std::vector<Batch> Decode(const std::string& bytes);

}}}  // namespace triton::backend::python
