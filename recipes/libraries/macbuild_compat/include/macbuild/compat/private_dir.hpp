// Folders that only this user can read.
#pragma once

#include <string>

namespace macbuild::compat {

// The folder for temporary files of this user, without a trailing slash. Darwin: confstr(_CS_DARWIN_USER_TEMP_DIR),
// which does not depend on TMPDIR, so that a server started by launchd and a client in a terminal use the same one.
// Elsewhere: TMPDIR or /tmp.
std::string user_temp_dir();

// Checks that a real folder of this user exists with no permission for anybody else. Returns 0 or errno; EPERM if
// the path cannot be trusted.
int check_private_dir(const std::string& path);

// Creates a folder of mode 0700, unless it exists and can be trusted. Returns as check_private_dir().
int make_private_dir(const std::string& path);

// Removes a folder and the files in it, but no subfolders. Returns 0 or errno.
int remove_flat_dir(const std::string& path);

}  // namespace macbuild::compat
