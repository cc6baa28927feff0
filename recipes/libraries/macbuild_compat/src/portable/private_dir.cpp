#include "macbuild/compat/private_dir.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace macbuild::compat {

std::string user_temp_dir()
{
    std::string folder = "/tmp";
#ifdef _CS_DARWIN_USER_TEMP_DIR
    char found[1024];  // PATH_MAX
    const std::size_t size = confstr(_CS_DARWIN_USER_TEMP_DIR, found, sizeof found);
    if (size > 1 && size <= sizeof found)
        folder.assign(found, size - 1);
#else
    if (const char* set = std::getenv("TMPDIR"); set != nullptr && *set == '/')
        folder = set;
#endif
    while (folder.size() > 1 && folder.back() == '/')
        folder.pop_back();
    return folder;
}

int make_private_dir(const std::string& path)
{
    if (mkdir(path.c_str(), 0700) == -1 && errno != EEXIST)
        return errno;
    return check_private_dir(path);
}

int check_private_dir(const std::string& path)
{
    struct stat found{};
    if (lstat(path.c_str(), &found) == -1)
        return errno;
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077) != 0)
        return EPERM;
    return 0;
}

int remove_flat_dir(const std::string& path)
{
    const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder == -1)
        return errno;
    DIR* entries = fdopendir(folder);
    if (entries == nullptr) {
        const int error = errno;
        close(folder);
        return error;
    }
    while (const dirent* entry = readdir(entries))
        unlinkat(folder, entry->d_name, 0);
    closedir(entries);
    return rmdir(path.c_str()) == -1 ? errno : 0;
}

}  // namespace macbuild::compat
