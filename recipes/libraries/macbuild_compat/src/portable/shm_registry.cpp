#include "macbuild/compat/shm_registry.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

#include "macbuild/compat/private_dir.hpp"
#include "macbuild/compat/shm_names.hpp"
#include "sha256.hpp"

namespace macbuild::compat {
namespace {

constexpr std::string_view kSuffix = ".region";

// flock() of the folder's lock file: other threads wait just as other processes do, and a crash releases it.
class Lock {
public:
    Lock(const std::string& folder, bool make)
    {
        error_ = make ? make_private_dir(folder) : check_private_dir(folder);
        if (error_ != 0)
            return;
        file_ = ::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        while (file_ != -1 && flock(file_, LOCK_EX) == -1) {
            if (errno == EINTR)
                continue;
            error_ = errno;
            return;
        }
        if (file_ == -1)
            error_ = errno;
    }
    ~Lock()
    {
        if (file_ != -1)
            close(file_);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    int error() const { return error_; }

private:
    int file_ = -1;
    int error_ = 0;
};

std::string to_hex(std::string_view bytes)
{
    std::string text;
    for (const char byte : bytes) {
        const auto value = static_cast<unsigned char>(byte);
        text += "0123456789abcdef"[value >> 4];
        text += "0123456789abcdef"[value & 15];
    }
    return text;
}

std::optional<std::string> from_hex(std::string_view text)
{
    const std::string_view digits = "0123456789abcdef";
    std::string bytes;
    for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
        const auto high = digits.find(text[at]), low = digits.find(text[at + 1]);
        if (high == digits.npos || low == digits.npos)
            return std::nullopt;
        bytes += static_cast<char>(high << 4 | low);
    }
    return text.size() % 2 == 0 ? std::optional(bytes) : std::nullopt;
}

// Nothing if the file does not exist, or is not a record of this format.
std::optional<Region> read_record(const std::string& path)
{
    std::ifstream file(path);
    std::string magic, version, field, name, key;
    Region region;
    file >> magic >> version >> field >> name >> field >> key >> field >> region.creator.pid >> field >> region.creator.started;
    const auto name_bytes = from_hex(name), key_bytes = from_hex(key);
    if (!file || magic != "macbuild-shm" || version != "1" || !name_bytes || !key_bytes)
        return std::nullopt;
    region.name = *name_bytes;
    region.key = *key_bytes;
    return region;
}

int open_region(const char* name, int flags, mode_t mode)
{
    const int region = shm_open(name, flags, mode);
    return region == -1 ? -errno : region;
}

}  // namespace

ShmRegistry& ShmRegistry::of_user()
{
    static ShmRegistry registry(user_temp_dir() + "/macbuild-shm-" + std::to_string(geteuid()));
    return registry;
}

std::string ShmRegistry::record_of(const std::string& name) const
{
    return folder_ + "/" + short_hash(name) + std::string(kSuffix);
}

bool ShmRegistry::belongs_to_other(const std::string& name, std::string_view key) const
{
    if (check_private_dir(folder_) != 0)
        return false;
    const auto record = read_record(record_of(name));
    const std::string_view body = shm_body(key);
    return record && record->name == name && record->key != body && shm_body(name) != body;
}

int ShmRegistry::write_record(const std::string& name, std::string_view key) const
{
    const ProcessId creator = own_process();
    std::ostringstream text;
    text << "macbuild-shm 1\nname " << to_hex(name) << "\nkey " << to_hex(shm_body(key)) << "\npid " << creator.pid << "\nstarted "
         << creator.started << '\n';
    const std::string beside = folder_ + "/new";  // one at a time: the lock is held
    const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file == -1)
        return errno;
    const std::string bytes = text.str();
    const bool whole = write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    const int error = whole ? 0 : ENOSPC;
    close(file);
    if (error == 0 && rename(beside.c_str(), record_of(name).c_str()) == -1)
        return errno;
    return error;
}

int ShmRegistry::open(std::string_view key, int flags, mode_t mode)
{
    const std::string name = shm_name(key);
    if (name.empty())
        return -EINVAL;
    if ((flags & O_CREAT) == 0)
        return belongs_to_other(name, key) ? -ENOENT : open_region(name.c_str(), flags, mode);
    const Lock lock(folder_, true);
    if (lock.error() != 0)
        return -lock.error();
    // Without O_EXCL it would be unknown whether the region existed before.
    int region = open_region(name.c_str(), flags | O_EXCL, mode);
    if (region == -EEXIST && (flags & O_EXCL) == 0 && !belongs_to_other(name, key))
        return open_region(name.c_str(), flags & ~O_CREAT, mode);
    if (region < 0)
        return region;
    if (const int error = write_record(name, key); error != 0) {
        shm_unlink(name.c_str());
        close(region);
        return -error;
    }
    return region;
}

int ShmRegistry::unlink(std::string_view key)
{
    const std::string name = shm_name(key);
    if (name.empty())
        return EINVAL;
    const Lock lock(folder_, false);  // no folder, no records
    if (belongs_to_other(name, key))
        return ENOENT;
    const int error = shm_unlink(name.c_str()) == -1 ? errno : 0;
    if (error == 0 || error == ENOENT)
        ::unlink(record_of(name).c_str());
    return error;
}

std::vector<Region> ShmRegistry::records() const
{
    std::vector<Region> found;
    DIR* entries = check_private_dir(folder_) == 0 ? opendir(folder_.c_str()) : nullptr;
    if (entries == nullptr)
        return found;
    while (const dirent* entry = readdir(entries)) {
        if (!std::string_view(entry->d_name).ends_with(kSuffix))
            continue;
        if (auto record = read_record(folder_ + "/" + entry->d_name); record && record_of(record->name) == folder_ + "/" + entry->d_name)
            found.push_back(std::move(*record));
    }
    closedir(entries);
    std::sort(found.begin(), found.end(), [](const Region& a, const Region& b) { return a.name < b.name; });
    return found;
}

std::vector<Region> ShmRegistry::list()
{
    std::vector<Region> found = records();
    std::erase_if(found, [](Region& region) {
        const int descriptor = shm_open(region.name.c_str(), O_RDONLY, 0);
        if (descriptor == -1)
            return errno == ENOENT;
        struct stat facts{};
        if (fstat(descriptor, &facts) == 0)
            region.size = static_cast<std::uint64_t>(facts.st_size);
        close(descriptor);
        return false;
    });
    return found;
}

std::vector<Region> ShmRegistry::remove_stale(std::string_view prefix)
{
    const std::string_view wanted = shm_body(prefix);
    const Lock lock(folder_, false);
    if (lock.error() != 0)
        return {};
    std::vector<Region> removed = list();
    for (const Region& record : records()) {
        if (!record.key.starts_with(wanted) || is_alive(record.creator))
            continue;
        shm_unlink(record.name.c_str());
        ::unlink(record_of(record.name).c_str());
    }
    std::erase_if(removed, [&](const Region& region) {
        return !region.key.starts_with(wanted) || is_alive(region.creator);
    });
    return removed;
}

}  // namespace macbuild::compat
