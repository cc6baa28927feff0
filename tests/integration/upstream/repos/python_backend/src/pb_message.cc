#include "pb_message.h"

#include <cstring>
#include <stdexcept>
namespace triton { namespace backend { namespace python {

void
Writer::Number(uint64_t number)
{
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void
Writer::Text(const std::string& text)
{
  Number(text.size());
  bytes += text;
}

uint64_t
Reader::Number()
{
  uint64_t number = 0;
  if (bytes_.size() - position_ < sizeof(number)) {
    throw std::runtime_error("a message ends too early");
  }
  memcpy(&number, bytes_.data() + position_, sizeof(number));
  position_ += sizeof(number);
  return number;
}

std::string
Reader::Text()
{
  const uint64_t size = Number();
  if (bytes_.size() - position_ < size) {
    throw std::runtime_error("a message ends too early");
  }
  position_ += size;
  return bytes_.substr(position_ - size, size);
}

std::string
Encode(char kind, const std::vector<Batch>& batches)
{
  Writer writer;
  writer.bytes = kind;
  writer.Number(batches.size());
  for (const auto& batch : batches) {
    writer.Text(batch.error);
    writer.Number(batch.requested.size());
    for (const auto& each : batch.requested) {
      writer.Text(each);
    }
    writer.Number(batch.tensors.size());
    for (const auto& tensor : batch.tensors) {
      writer.Text(tensor.name);
      writer.Text(tensor.dtype);
      writer.Number(tensor.shape.size());
      for (const int64_t each : tensor.shape) {
        writer.Number(static_cast<uint64_t>(each));
      }
      writer.Text(tensor.bytes);
    }
  }
  return writer.bytes;
}

std::vector<Batch>
Decode(const std::string& bytes)
{
  Reader reader(bytes, 1);
  std::vector<Batch> batches(reader.Number());
  for (auto& batch : batches) {
    batch.error = reader.Text();
    batch.requested.resize(reader.Number());
    for (auto& each : batch.requested) {
      each = reader.Text();
    }
    batch.tensors.resize(reader.Number());
    for (auto& tensor : batch.tensors) {
      tensor.name = reader.Text();
      tensor.dtype = reader.Text();
      tensor.shape.resize(reader.Number());
      for (auto& each : tensor.shape) {
        each = static_cast<int64_t>(reader.Number());
      }
      tensor.bytes = reader.Text();
    }
  }
  return batches;
}

}}}  // namespace triton::backend::python
