// A message to bytes and back, to JSON and back, through reflection, and broken input.
#include <cstdio>
#include <string>

#include "absl/strings/escaping.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/json/json.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "request.pb.h"

namespace {

using google::protobuf::util::MessageDifferencer;
using macbuild::test::Request;

// Output of Python's protobuf 6.33.6 for the same message: SerializeToString(deterministic=True).
constexpr char kWire[] =
    "0a086964656e74697479100518ffffffffffffffffff0121000000000000d03f280130023a220a02494e120d01ffffff"
    "ffffffffffff01ac021a0300ff7f22080000c03f000000c042090a05626174636810085205636166c3a95800620c0880"
    "c3bbc2061080cab5ee016a100a0e0a0161120911000000000000f83f";

int failures = 0;

void Check(bool good, const char* what) {
  if (!good) {
    ++failures;
    std::fprintf(stderr, "wrong: %s\n", what);
  }
}

void Fill(Request& request) {
  request.set_model("identity");
  request.set_offset(-3);
  request.set_id(18446744073709551615u);
  request.set_threshold(0.25);
  request.set_cached(true);
  request.set_kind(macbuild::test::KIND_MODEL);
  macbuild::test::Tensor* input = request.add_inputs();
  input->set_name("IN");
  for (const int64_t size : {1, -1, 300}) {
    input->add_shape(size);
  }
  input->set_raw(std::string("\x00\xff\x7f", 3));
  input->add_values(1.5f);
  input->add_values(-2.0f);
  (*request.mutable_parameters())["batch"] = 8;
  request.set_text("caf\xc3\xa9");
  request.set_priority(0);
  request.mutable_time()->set_seconds(1750000000);
  request.mutable_time()->set_nanos(500000000);
  (*request.mutable_extra()->mutable_fields())["a"].set_number_value(1.5);
}

void Wire(const Request& request) {
  const std::string bytes = request.SerializeAsString();
  Check(absl::BytesToHexString(bytes) == kWire, "bytes");
  google::protobuf::Arena arena;
  auto* again = google::protobuf::Arena::Create<Request>(&arena);
  Check(again->ParseFromString(bytes) && MessageDifferencer::Equals(request, *again), "ParseFromString");
  Check(again->has_priority() && again->choice_case() == Request::kText, "presence");
  Check(!again->ParseFromString(bytes.substr(0, bytes.size() - 1)), "cut input");
  Check(!again->ParseFromString("\x0a\x01\xff"), "a string that is not UTF-8");
}

void Json(const Request& request) {
  std::string json;
  Check(google::protobuf::json::MessageToJsonString(request, &json).ok(), "MessageToJsonString");
  for (const char* part : {"\"id\":\"18446744073709551615\"", "\"time\":\"2025-06-15T15:06:40.500Z\"",
                           "\"kind\":\"KIND_MODEL\"", "\"extra\":{\"a\":1.5}", "\"raw\":\"AP9/\""}) {
    Check(json.find(part) != std::string::npos, part);
  }
  Request again;
  Check(google::protobuf::json::JsonStringToMessage(json, &again).ok() && MessageDifferencer::Equals(request, again),
        "JsonStringToMessage");
  Check(!google::protobuf::json::JsonStringToMessage("{\"unknown\": 1}", &again).ok(), "an unknown field in JSON");
}

void Reflection(const Request& request) {
  const google::protobuf::Descriptor* descriptor = Request::descriptor();
  Check(descriptor->full_name() == "macbuild.test.Request" && descriptor->field_count() == 13, "descriptor");
  const google::protobuf::FieldDescriptor* field = descriptor->FindFieldByName("model");
  Check(field != nullptr && request.GetReflection()->GetString(request, field) == "identity", "reflection");
  std::string text;
  Request again;
  Check(google::protobuf::TextFormat::PrintToString(request, &text) &&
            google::protobuf::TextFormat::ParseFromString(text, &again) && MessageDifferencer::Equals(request, again),
        "TextFormat");
}

}  // namespace

int main() {
  Request request;
  Fill(request);
  Wire(request);
  Json(request);
  Reflection(request);
  google::protobuf::ShutdownProtobufLibrary();
  return failures == 0 ? 0 : 1;
}
