#include "macbuild/compat/ipc_dir.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include "check.hpp"
#include "macbuild/compat/private_dir.hpp"

namespace boost::interprocess::ipcdetail {
void get_shared_dir(std::string& shared_dir);
}

using namespace macbuild::compat;

namespace {

std::string folder_in(const std::string& base, const ProcessId& process)
{
    return base + "/" + std::to_string(process.pid) + "-" + std::to_string(process.started);
}

mode_t mode_of(const std::string& path)
{
    struct stat facts{};
    CHECK(stat(path.c_str(), &facts) == 0);
    return facts.st_mode & 07777;
}

void parents_are_in_line()
{
    const auto line = line_of_parents();
    CHECK(line.size() >= 2);
    CHECK(line[0] == own_process());
    CHECK_EQUAL(line[1].pid, getppid());
}

void a_server_has_its_own_and_its_children_find_it(const std::string& base)
{
    const ProcessId self = own_process(), other = {1 << 21, 7}, child = {(1 << 21) + 1, 8};
    std::string found;
    bool made = false;
    CHECK_EQUAL(choose_ipc_dir(base, {self, other}, found, made), 0);
    CHECK(made);
    CHECK_EQUAL(found, folder_in(base, self));
    CHECK_EQUAL(mode_of(base), 0700U);
    CHECK_EQUAL(mode_of(found), 0700U);
    std::string of_child;
    CHECK_EQUAL(choose_ipc_dir(base, {child, other, self}, of_child, made), 0);
    CHECK(!made);
    CHECK_EQUAL(of_child, found);
    CHECK_EQUAL(choose_ipc_dir(base, {self, other}, found, made), 0);
    CHECK(!made);
    CHECK_EQUAL(choose_ipc_dir(base, {}, found, made), ESRCH);
}

void folders_of_dead_servers_go(const std::string& base)
{
    const std::string dead = folder_in(base, {1 << 21, 7}), again = folder_in(base, {getpid(), own_process().started + 1});
    for (const auto& folder : {dead, again}) {
        CHECK(mkdir(folder.c_str(), 0700) == 0);
        std::ofstream(folder + "/region") << "left by a crash";
    }
    CHECK(mkdir((base + "/not ours").c_str(), 0700) == 0);
    remove_stale_ipc_dirs(base);
    CHECK(access(dead.c_str(), F_OK) == -1);
    CHECK(access(again.c_str(), F_OK) == -1);  // the number of a live process, but not that process
    CHECK(access(folder_in(base, own_process()).c_str(), F_OK) == 0);
    CHECK(access((base + "/not ours").c_str(), F_OK) == 0);
    CHECK(rmdir((base + "/not ours").c_str()) == 0);
}

void strangers_are_kept_out(const std::string& base)
{
    CHECK(chmod(base.c_str(), 0711) == 0);
    std::string found;
    bool made = false;
    CHECK_EQUAL(choose_ipc_dir(base, {own_process()}, found, made), EPERM);
    CHECK(chmod(base.c_str(), 0700) == 0);
    const std::string own = folder_in(base, own_process());
    CHECK(chmod(own.c_str(), 0777) == 0);
    CHECK_EQUAL(choose_ipc_dir(base, {own_process()}, found, made), EPERM);
    CHECK_EQUAL(remove_flat_dir(own), 0);
}

void the_folder_comes_back_and_goes_with_the_process()
{
    const pid_t child = fork();
    if (child == 0) {
        const std::string folder = ipc_dir();
        CHECK(folder.starts_with(user_temp_dir() + "/macbuild-ipc-"));
        CHECK_EQUAL(mode_of(folder), 0700U);
        CHECK(rmdir(folder.c_str()) == 0);  // the system cleans up
        CHECK_EQUAL(ipc_dir(), folder);
        CHECK(access(folder.c_str(), F_OK) == 0);
        std::string asked;
        boost::interprocess::ipcdetail::get_shared_dir(asked);
        CHECK_EQUAL(asked, folder);
        const pid_t grandchild = fork();
        if (grandchild == 0)
            std::exit(ipc_dir() == folder ? 0 : 1);  // its exit handlers must leave the folder alone
        int status = -1;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        CHECK(access(folder.c_str(), F_OK) == 0);
        std::exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    const std::string base = user_temp_dir() + "/macbuild-ipc-" + std::to_string(geteuid());
    CHECK_EQUAL(rmdir(base.c_str()), 0);  // empty
}

void without_a_folder_nothing_can_be_made()
{
    const std::string base = user_temp_dir() + "/macbuild-ipc-" + std::to_string(geteuid());
    CHECK(mkdir(base.c_str(), 0700) == 0 && chmod(base.c_str(), 0755) == 0);
    const pid_t child = fork();
    if (child == 0) {
        std::ofstream file(ipc_dir() + "/region");
        std::exit(!file && errno == ENOTDIR ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(rmdir(base.c_str()) == 0);
}

}  // namespace

int main()
{
    char temporary[] = "/tmp/macbuild-compat-test-XXXXXX";
    CHECK(mkdtemp(temporary) != nullptr && setenv("TMPDIR", temporary, 1) == 0);
    const std::string base = std::string(temporary) + "/base";
    parents_are_in_line();
    a_server_has_its_own_and_its_children_find_it(base);
    folders_of_dead_servers_go(base);
    strangers_are_kept_out(base);
    the_folder_comes_back_and_goes_with_the_process();
    without_a_folder_nothing_can_be_made();
    CHECK(rmdir(base.c_str()) == 0);
    CHECK(rmdir(temporary) == 0);
}
