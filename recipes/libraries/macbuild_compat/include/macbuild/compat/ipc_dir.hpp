// The folder for files that stand in for shared memory: on Darwin, Boost.Interprocess emulates its shared_memory_object
// with files, by default below the world's /tmp and forever.
//
// A server has its own folder, "<base>/<pid>-<started>", mode 0700. Its children find it through their chain of
// parents, so that nothing is passed to them and no environment variable is set while threads run. When a server ends,
// it removes its folder if it is empty; when a later one creates its own, it removes those of servers that have ended.
#pragma once

#include <string>
#include <vector>

#include "macbuild/compat/process.hpp"

namespace macbuild::compat {

// This process, its parent, and so on to the last one that can be inspected.
std::vector<ProcessId> line_of_parents();

// Finds the folder of the nearest parent in `line` that has one below `base`; if none has, creates that of the first in
// the line, and `base` too. Returns errno, or 0 and the folder in `found`; `made` says whether it is new.
int choose_ipc_dir(const std::string& base, const std::vector<ProcessId>& line, std::string& found, bool& made);

// Removes the folders below `base` whose process has ended, with their contents.
void remove_stale_ipc_dirs(const std::string& base);

// The folder for this process, always the same. If it cannot be created, a path below which no file can be created, so
// that the caller's own error handling sees the first use fail (ENOTDIR) and nothing is shared with strangers.
const std::string& ipc_dir();

}  // namespace macbuild::compat
