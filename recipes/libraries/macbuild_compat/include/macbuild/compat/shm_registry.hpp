// POSIX shared memory by keys of any length, with a record of each region that was made.
//
// Darwin has no folder of regions, such as Linux's /dev/shm. So for every region made through this class there is a
// small file in a folder that only the user can read: the name, the key and the process that made it. These give the
// list, the proof that a hashed name belongs to the given key, and a way to remove the regions of a process that
// crashed. recipes/libraries/macbuild_compat/python/triton_shm_names.py reads and writes the same files.
//
// A file is "<short hash of the name>.region", since names differ in case and file systems may not, with the lines
//     macbuild-shm 1
//     name <hexadecimal>
//     key <hexadecimal>      without leading slashes
//     pid <decimal>
//     started <decimal>      as in ProcessId
// It is written under another name and renamed, under flock() of the file "lock".
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "macbuild/compat/process.hpp"

namespace macbuild::compat {

struct Region {
    std::string name;        // the kernel's name
    std::string key;         // the requested key, without leading slashes
    ProcessId creator;
    std::uint64_t size = 0;  // bytes, whole pages on Darwin
};

class ShmRegistry {
public:
    // A folder that is created with the first region.
    explicit ShmRegistry(std::string folder) : folder_(std::move(folder)) {}

    // The folder that all processes of this user share.
    static ShmRegistry& of_user();

    // shm_open() for a key. Returns a descriptor or -errno:
    //   EINVAL  the key has no name (shm_name())
    //   ENOENT  no such region; or its name belongs to another key, so that this key has none
    //   EEXIST  it exists and O_EXCL was given; or its name belongs to another key
    //   EPERM   the folder of records is not this user's own; nothing is created without a record
    // A region of another program that has no record is opened normally. Records in a folder that is not this user's
    // own are not read.
    int open(std::string_view key, int flags, mode_t mode);

    // shm_unlink() for a key. Returns 0 or errno, as open() does.
    int unlink(std::string_view key);

    // Regions that exist, by name.
    std::vector<Region> list();

    // Removes regions whose creator has ended and whose key starts with `prefix`; returns them. A process that has
    // mapped one keeps its memory. Not for regions that must outlive the process that made them.
    std::vector<Region> remove_stale(std::string_view prefix = {});

private:
    std::vector<Region> records() const;
    std::string record_of(const std::string& name) const;
    int write_record(const std::string& name, std::string_view key) const;
    bool belongs_to_other(const std::string& name, std::string_view key) const;

    std::string folder_;
};

}  // namespace macbuild::compat
