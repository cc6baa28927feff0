// The folder for files that stand in for shared memory: Boost.Interprocess emulates its shared_memory_object with files
// on Darwin, by default below the world's /tmp and for ever.
//
// A server has a folder of its own, "<base>/<pid>-<started>", mode 0700. Its children find it by their line of parents,
// so that nothing is passed to them and no environment variable is set while threads run. When a server ends, it
// removes its folder if it is empty; when a later one makes its own, it removes those of servers that are gone.
#pragma once

#include <string>
#include <vector>

#include "macbuild/compat/process.hpp"

namespace macbuild::compat {

// This process, its parent, and so on to the last one that can be looked at.
std::vector<ProcessId> line_of_parents();

// The folder of the nearest parent in `line` that has one below `base`; else that of the first of the line, which is
// made. `base` is made too. Returns errno, or 0 and the folder in `found`; `made` tells whether it is new.
int choose_ipc_dir(const std::string& base, const std::vector<ProcessId>& line, std::string& found, bool& made);

// Removes the folders below `base` whose process has ended, with what is in them.
void remove_stale_ipc_dirs(const std::string& base);

// The folder for this process, always the same. If it cannot be made, a path that no file can be made below, so that
// the caller's own error handling sees the first use fail (ENOTDIR) and nothing is shared with strangers.
const std::string& ipc_dir();

}  // namespace macbuild::compat
