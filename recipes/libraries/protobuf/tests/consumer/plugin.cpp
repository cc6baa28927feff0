// protoc-gen-names: writes the names of a file's messages to names.txt.
#include <memory>
#include <string>

#include "google/protobuf/compiler/code_generator.h"
#include "google/protobuf/compiler/plugin.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/printer.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace {

class Names : public google::protobuf::compiler::CodeGenerator {
 public:
  bool Generate(const google::protobuf::FileDescriptor* file, const std::string&,
                google::protobuf::compiler::GeneratorContext* context, std::string*) const override {
    const std::unique_ptr<google::protobuf::io::ZeroCopyOutputStream> output(context->Open("names.txt"));
    google::protobuf::io::Printer printer(output.get());
    for (int i = 0; i < file->message_type_count(); ++i) {
      printer.Print("$name$\n", "name", std::string(file->message_type(i)->full_name()));
    }
    return true;
  }
  uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }
};

}  // namespace

int main(int argc, char** argv) {
  const Names names;
  return google::protobuf::compiler::PluginMain(argc, argv, &names);
}
