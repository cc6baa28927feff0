#pragma once
#include <string>
#include <utility>
namespace triton { namespace common {

class Error {
 public:
  enum class Code { SUCCESS, UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS };
  explicit Error(Code code = Code::SUCCESS, std::string msg = {}) : code_(code), msg_(std::move(msg)) {}
  bool IsOk() const { return code_ == Code::SUCCESS; }
  Code ErrorCode() const { return code_; }
  const std::string& Message() const { return msg_; }
  static const char* CodeString(Code code);

 private:
  Code code_;
  std::string msg_;
};

}}  // namespace triton::common
