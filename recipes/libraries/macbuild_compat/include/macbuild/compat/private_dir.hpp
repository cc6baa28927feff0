// Folders that only this user can look into.
#pragma once

#include <string>

namespace macbuild::compat {

// The folder for temporary files of this user, without a slash at its end. Darwin: confstr(_CS_DARWIN_USER_TEMP_DIR),
// which does not depend on TMPDIR, so that a server started by launchd and a client in a terminal mean the same one.
// Elsewhere: TMPDIR or /tmp.
std::string user_temp_dir();

// Whether there is a real folder of this user with no permission for anybody else. Returns 0 or errno; EPERM if what is
// there cannot be trusted.
int check_private_dir(const std::string& path);

// Makes a folder of mode 0700, unless it is there and can be trusted. Returns as check_private_dir().
int make_private_dir(const std::string& path);

// Removes a folder and the files in it, but nothing that is a folder itself. Returns 0 or errno.
int remove_flat_dir(const std::string& path);

}  // namespace macbuild::compat
