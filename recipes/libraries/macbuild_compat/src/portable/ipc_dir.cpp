#include "macbuild/compat/ipc_dir.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "macbuild/compat/private_dir.hpp"

namespace macbuild::compat {
namespace {

constexpr std::size_t kLongestLine = 16;

std::string folder_of(const std::string& base, const ProcessId& process)
{
    return base + "/" + std::to_string(process.pid) + "-" + std::to_string(process.started);
}

constexpr const char* kNowhere = "/dev/null/macbuild-ipc";

std::string base_of_user() { return user_temp_dir() + "/macbuild-ipc-" + std::to_string(geteuid()); }

struct Chosen {
    std::string folder = kNowhere;
    pid_t maker = 0;
};

const Chosen& chosen()
{
    static const auto* const once = [] {
        auto* const choice = new Chosen;  // never destroyed: used at exit
        bool made = false;
        if (choose_ipc_dir(base_of_user(), line_of_parents(), choice->folder, made) != 0)
            choice->folder = kNowhere;
        choice->maker = made ? getpid() : 0;
        if (made)
            std::atexit([] {
                if (chosen().maker == getpid())  // not in a forked child
                    rmdir(chosen().folder.c_str());
            });
        return choice;
    }();
    return *once;
}

}  // namespace

std::vector<ProcessId> line_of_parents()
{
    std::vector<ProcessId> line;
    for (pid_t pid = getpid(); pid > 1 && line.size() < kLongestLine;) {
        const auto facts = process_facts(pid);
        if (!facts)
            break;
        line.push_back({pid, facts->started});
        pid = facts->parent;
    }
    return line;
}

int choose_ipc_dir(const std::string& base, const std::vector<ProcessId>& line, std::string& found, bool& made)
{
    made = false;
    if (line.empty())
        return ESRCH;
    if (const int error = make_private_dir(base); error != 0)
        return error;
    for (std::size_t i = 1; i < line.size(); ++i) {
        found = folder_of(base, line[i]);
        if (access(found.c_str(), F_OK) == 0)
            return make_private_dir(found);
    }
    remove_stale_ipc_dirs(base);
    found = folder_of(base, line.front());
    made = access(found.c_str(), F_OK) != 0;
    return make_private_dir(found);
}

void remove_stale_ipc_dirs(const std::string& base)
{
    DIR* entries = opendir(base.c_str());
    if (entries == nullptr)
        return;
    while (const dirent* entry = readdir(entries)) {
        ProcessId owner;
        unsigned long long started = 0;
        if (std::sscanf(entry->d_name, "%d-%llu", &owner.pid, &started) != 2)
            continue;
        owner.started = started;
        if (folder_of(base, owner) == base + "/" + entry->d_name && !is_alive(owner))
            remove_flat_dir(base + "/" + entry->d_name);
    }
    closedir(entries);
}

const std::string& ipc_dir()
{
    const std::string& folder = chosen().folder;
    // macOS removes files from the folder for temporary files that nobody touched for days, including an empty folder
    // of ours.
    if (folder != kNowhere && make_private_dir(base_of_user()) == 0)
        make_private_dir(folder);
    return folder;
}

}  // namespace macbuild::compat
