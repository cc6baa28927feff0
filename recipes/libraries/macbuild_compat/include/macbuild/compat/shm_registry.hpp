// POSIX shared memory by keys of any length, with a record of each region that was made.
//
// Darwin has no folder to look into, as Linux has /dev/shm. So every region made through this class leaves a small file
// in a folder that only the user can read: the name, the key and the process that made it. From these come the list, the
// proof that a hashed name means the key that was given, and the removal of what a process that crashed left behind.
// recipes/libraries/macbuild_compat/python/triton_shm_names.py reads and writes the same files.
//
// A file is "<short hash of the name>.region", since names differ in case and file systems may not, and holds the lines
//     macbuild-shm 1
//     name <hexadecimal>
//     key <hexadecimal>      without leading slashes
//     pid <decimal>
//     started <decimal>      as ProcessId
// It is written beside and renamed, under flock() of the file "lock".
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "macbuild/compat/process.hpp"

namespace macbuild::compat {

struct Region {
    std::string name;        // what the kernel knows
    std::string key;         // what the region was asked for by, without leading slashes
    ProcessId creator;
    std::uint64_t size = 0;  // bytes, whole pages on Darwin
};

class ShmRegistry {
public:
    // A folder that is made when the first region is.
    explicit ShmRegistry(std::string folder) : folder_(std::move(folder)) {}

    // The folder that all processes of this user share.
    static ShmRegistry& of_user();

    // shm_open() for a key. Returns a descriptor or -errno:
    //   EINVAL  the key has no name (shm_name())
    //   ENOENT  no such region; or its name means another key, so that this key has none
    //   EEXIST  it exists and O_EXCL was given; or its name means another key
    //   EPERM   the folder of records is not this user's own; nothing is made without a record
    // A region of another program that has no record is opened as it is. Records in a folder that is not this user's own
    // are not read.
    int open(std::string_view key, int flags, mode_t mode);

    // shm_unlink() for a key. Returns 0 or errno as open().
    int unlink(std::string_view key);

    // Regions that exist, by name.
    std::vector<Region> list();

    // Removes regions whose creator has ended and whose key starts with `prefix`; returns them. A process that has one
    // mapped keeps its memory. Not for regions that are meant to outlive the process that made them.
    std::vector<Region> remove_stale(std::string_view prefix = {});

private:
    std::vector<Region> records() const;
    std::string record_of(const std::string& name) const;
    int write_record(const std::string& name, std::string_view key) const;
    bool belongs_to_other(const std::string& name, std::string_view key) const;

    std::string folder_;
};

}  // namespace macbuild::compat
