#pragma once
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
namespace triton { namespace core {

class LocalFileSystem {
 public:
  bool FileExists(const std::string& path) const
  {
    struct stat st;
    return stat(path.c_str(), &st) == 0;
  }

  bool IsDirectory(const std::string& path) const
  {
    struct stat st;
    return stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
  }

  // Nanoseconds since the epoch, the later one of contents and status; 0 if there is no such file.
  int64_t FileModificationTime(const std::string& path) const
  {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) {
      return 0;
    }
    return std::max(
        int64_t(st.st_mtim.tv_sec) * 1000000000 + st.st_mtim.tv_nsec,
        int64_t(st.st_ctim.tv_sec) * 1000000000 + st.st_ctim.tv_nsec);
  }

  std::set<std::string> GetDirectoryContents(const std::string& path) const
  {
    std::set<std::string> names;
    if (DIR* dir = opendir(path.c_str())) {
      while (const struct dirent* entry = readdir(dir)) {
        const std::string name(entry->d_name);
        if (name != "." && name != "..") {
          names.insert(name);
        }
      }
      closedir(dir);
    }
    return names;
  }

  bool ReadTextFile(const std::string& path, std::string* text) const
  {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
      return false;
    }
    std::ostringstream all;
    all << in.rdbuf();
    *text = all.str();
    return true;
  }
};

}}  // namespace triton::core
