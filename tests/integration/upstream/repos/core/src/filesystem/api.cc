#include "filesystem/api.h"

#include "filesystem/implementations/local.h"
namespace triton { namespace core {

std::string
JoinPath(std::initializer_list<std::string> parts)
{
  std::string whole;
  for (const auto& part : parts) {
    if (!whole.empty() && whole.back() != '/') {
      whole += '/';
    }
    whole += part;
  }
  return whole;
}

bool
FileExists(const std::string& path)
{
  return LocalFileSystem().FileExists(path);
}

bool
IsDirectory(const std::string& path)
{
  return LocalFileSystem().IsDirectory(path);
}

int64_t
FileModificationTime(const std::string& path)
{
  return LocalFileSystem().FileModificationTime(path);
}

std::set<std::string>
GetDirectorySubdirs(const std::string& path)
{
  std::set<std::string> folders;
  for (const auto& name : LocalFileSystem().GetDirectoryContents(path)) {
    if (IsDirectory(JoinPath({path, name}))) {
      folders.insert(name);
    }
  }
  return folders;
}

bool
ReadTextFile(const std::string& path, std::string* text)
{
  return LocalFileSystem().ReadTextFile(path, text);
}

}}  // namespace triton::core
