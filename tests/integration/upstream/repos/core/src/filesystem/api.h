#pragma once
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
namespace triton { namespace core {

std::string JoinPath(std::initializer_list<std::string> parts);
bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
int64_t FileModificationTime(const std::string& path);
std::set<std::string> GetDirectorySubdirs(const std::string& path);
bool ReadTextFile(const std::string& path, std::string* text);

}}  // namespace triton::core
