#pragma once
#include <string>
namespace triton { namespace backend { namespace python {

// A Python environment as conda-pack makes it: a folder, or an archive that is unpacked to a folder of its own.
class EnvironmentManager {
 public:
  EnvironmentManager();
  ~EnvironmentManager();
  // The folder, which has bin/activate; throws if it does not.
  std::string ExtractIfNotExtracted(const std::string& path);

 private:
  std::string base_path_;
  int count_ = 0;
};

}}}  // namespace triton::backend::python
