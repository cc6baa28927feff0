// Uses the machine's own shared memory, under names that only this test makes.
#include "macbuild/compat/shm_registry.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "macbuild/compat/private_dir.hpp"
#include "macbuild/compat/shm_names.hpp"

using namespace macbuild::compat;

namespace {

class Folder {
public:
    Folder() { CHECK(mkdtemp(path_.data()) != nullptr); }
    ~Folder()
    {
        remove_flat_dir(path("records"));
        remove_flat_dir(path_);
    }
    std::string path(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_ = "/tmp/macbuild-compat-test-XXXXXX";
};

std::string own(const std::string& name) { return "/mbtest-" + std::to_string(getpid()) + "-" + name; }

const std::string kLong = " is a key that is much longer than the thirty-one bytes of Darwin/and has a slash";
constexpr int kMake = O_CREAT | O_RDWR;

bool exists(const std::string& key)
{
    const int region = shm_open(shm_name(key).c_str(), O_RDONLY, 0);
    if (region >= 0)
        close(region);
    return region >= 0;
}

// Makes regions in a child that ends without removing them.
void crash_with(ShmRegistry& registry, const std::vector<std::string>& keys)
{
    const pid_t child = fork();
    if (child == 0) {
        for (const auto& key : keys)
            if (registry.open(key, kMake | O_EXCL, 0600) < 0)
                _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

void a_region_is_found_by_its_key_from_another_process()
{
    Folder folder;
    ShmRegistry registry(folder.path("records"));
    const std::string key = own("shared") + kLong;
    const int made = registry.open(key, kMake | O_EXCL, 0600);
    CHECK(made >= 0 && ftruncate(made, 8192) == 0);
    auto* const bytes = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0));
    CHECK(bytes != MAP_FAILED);
    const pid_t child = fork();
    if (child == 0) {
        const int found = ShmRegistry(folder.path("records")).open("/" + key, O_RDWR, 0);
        char* const same = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, found, 0));
        same[8191] = 'y';
        _exit(found >= 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_EQUAL(bytes[8191], 'y');
    CHECK_EQUAL(registry.open(key, kMake | O_EXCL, 0600), -EEXIST);
    const int again = registry.open(key, kMake, 0600);
    CHECK(again >= 0);
    CHECK((fcntl(made, F_GETFD) & FD_CLOEXEC) != 0);
    munmap(bytes, 8192);
    close(made);
    close(again);
    CHECK_EQUAL(registry.unlink(key), 0);
    CHECK_EQUAL(registry.open(key, O_RDWR, 0), -ENOENT);
    CHECK_EQUAL(registry.unlink(key), ENOENT);
    CHECK(registry.list().empty());
}

void the_list_gives_keys_back()
{
    Folder folder;
    ShmRegistry registry(folder.path("records"));
    CHECK(registry.list().empty());
    const std::string keys[] = {own("b"), own("B"), own("c") + kLong};
    for (const auto& key : keys) {
        const int region = registry.open(key, kMake, 0600);
        CHECK(region >= 0 && ftruncate(region, 4096) == 0);
        close(region);
    }
    const auto found = registry.list();
    CHECK_EQUAL(found.size(), 3U);  // two differ in case only
    for (const auto& key : keys) {
        const auto region = std::find_if(found.begin(), found.end(), [&](const Region& one) { return one.key == shm_body(key); });
        CHECK(region != found.end());
        CHECK_EQUAL(region->name, shm_name(key));
        CHECK(region->creator == own_process());
        CHECK(region->size >= 4096);
    }
    // After another program removes a region, it is no longer listed.
    shm_unlink(shm_name(keys[0]).c_str());
    CHECK_EQUAL(registry.list().size(), 2U);
    for (const auto& key : keys)
        registry.unlink(key);
}

void a_name_that_means_another_key_is_refused()
{
    Folder folder;
    ShmRegistry registry(folder.path("records"));
    const std::string key = own("first") + kLong;
    close(registry.open(key, kMake, 0600));
    // No two keys with the same hash are known, so the record is changed to name another key.
    DIR* const entries = opendir(folder.path("records").c_str());
    std::string record;
    while (const dirent* entry = readdir(entries))
        if (std::string_view(entry->d_name).ends_with(".region"))
            record = folder.path("records/") + entry->d_name;
    closedir(entries);
    std::stringstream text;
    text << std::ifstream(record).rdbuf();
    std::string changed = text.str();
    const auto at = changed.find("\nkey ") + 5;
    changed[at + 1] = changed[at + 1] == '1' ? '2' : '1';
    std::ofstream(record) << changed;
    CHECK_EQUAL(registry.open(key, O_RDWR, 0), -ENOENT);
    CHECK_EQUAL(registry.open(key, kMake, 0600), -EEXIST);
    CHECK_EQUAL(registry.unlink(key), ENOENT);
    CHECK(exists(key));
    // The region is still available by its name.
    const int named = registry.open(shm_name(key), O_RDWR, 0);
    CHECK(named >= 0);
    close(named);
    CHECK_EQUAL(registry.unlink(shm_name(key)), 0);
    CHECK(!exists(key));
}

void only_what_a_dead_process_left_is_removed()
{
    Folder folder;
    ShmRegistry registry(folder.path("records"));
    const std::string mine = own("alive");
    const std::vector<std::string> left = {own("left-1"), own("left-2") + kLong};
    close(registry.open(mine, kMake, 0600));
    crash_with(registry, left);
    for (const auto& key : left)
        CHECK(exists(key));
    CHECK(registry.remove_stale("/no such prefix").empty());
    CHECK_EQUAL(registry.list().size(), 3U);
    const auto removed = registry.remove_stale(own("left"));
    CHECK_EQUAL(removed.size(), 2U);
    for (const auto& key : left)
        CHECK(!exists(key));
    CHECK(exists(mine));
    CHECK_EQUAL(registry.list().size(), 1U);
    CHECK(registry.remove_stale().empty());
    registry.unlink(mine);
}

void a_record_from_a_crash_does_not_stop_the_next_server()
{
    Folder folder;
    ShmRegistry registry(folder.path("records"));
    const std::string key = own("again") + kLong;
    crash_with(registry, {key});
    shm_unlink(shm_name(key).c_str());  // like a restart of the machine, which keeps the record
    const int region = registry.open(key, kMake | O_EXCL, 0600);
    CHECK(region >= 0);
    close(region);
    CHECK(registry.list().at(0).creator == own_process());
    registry.unlink(key);
}

void a_folder_that_others_can_enter_is_not_trusted()
{
    Folder folder;
    CHECK(mkdir(folder.path("records").c_str(), 0700) == 0 && chmod(folder.path("records").c_str(), 0755) == 0);
    ShmRegistry registry(folder.path("records"));
    CHECK_EQUAL(registry.open(own("open"), kMake, 0600), -EPERM);
    CHECK(!exists(own("open")));
    // A record written there by a stranger must not remove a region.
    ShmRegistry good(folder.path("good"));
    close(good.open(own("mine"), kMake, 0600));
    CHECK(good.list().size() == 1);
    DIR* const entries = opendir(folder.path("good").c_str());
    while (const dirent* entry = readdir(entries))
        if (std::string_view(entry->d_name).ends_with(".region")) {
            std::stringstream text;
            text << std::ifstream(folder.path("good/") + entry->d_name).rdbuf();
            std::string dead = text.str();
            dead.replace(dead.find("started"), dead.npos, "started 1\n");
            std::ofstream(folder.path("records/") + entry->d_name) << dead;
        }
    closedir(entries);
    CHECK(registry.list().empty() && registry.remove_stale().empty() && exists(own("mine")));
    CHECK(chmod(folder.path("records").c_str(), 0700) == 0);
    CHECK_EQUAL(registry.remove_stale().size(), 1U);
    remove_flat_dir(folder.path("good"));
    CHECK(symlink("/tmp", folder.path("link").c_str()) == 0);
    ShmRegistry linked(folder.path("link"));
    CHECK_EQUAL(linked.open(own("open"), kMake, 0600), -EPERM);
    CHECK_EQUAL(registry.open("//", kMake, 0600), -EINVAL);
}

void garbage_in_the_folder_is_no_record()
{
    Folder folder;
    ShmRegistry registry(folder.path("records"));
    close(registry.open(own("good"), kMake, 0600));
    std::ofstream(folder.path("records/aaaa.region")) << "macbuild-shm 1\nname zz\n";
    std::ofstream(folder.path("records/bbbb.region")) << std::string(5000, '\xff');
    // A record under a file name that is not its own must not remove another user's region.
    std::ofstream(folder.path("records/cccc.region")) << "macbuild-shm 1\nname 2f78\nkey 78\npid 1\nstarted 1\n";
    CHECK_EQUAL(registry.list().size(), 1U);
    CHECK(registry.remove_stale().empty());
    registry.unlink(own("good"));
}

void many_at_once_agree()
{
    Folder folder;
    const std::string records = folder.path("records");
    std::vector<std::thread> threads;
    std::vector<int> winners(8, 0);
    for (std::size_t i = 0; i < winners.size(); ++i)
        threads.emplace_back([&, i] {
            for (int round = 0; round < 20; ++round) {
                const int region = ShmRegistry(records).open(own("race-" + std::to_string(round)) + kLong, kMake | O_EXCL, 0600);
                winners[i] += region >= 0 ? 1 : 0;
                if (region >= 0)
                    close(region);
            }
        });
    for (auto& thread : threads)
        thread.join();
    int sum = 0;
    for (const int wins : winners)
        sum += wins;
    CHECK_EQUAL(sum, 20);
    CHECK_EQUAL(ShmRegistry(records).list().size(), 20U);
    for (const auto& region : ShmRegistry(records).list())
        ShmRegistry(records).unlink(region.key);
}

}  // namespace

int main()
{
    a_region_is_found_by_its_key_from_another_process();
    the_list_gives_keys_back();
    a_name_that_means_another_key_is_refused();
    only_what_a_dead_process_left_is_removed();
    a_record_from_a_crash_does_not_stop_the_next_server();
    a_folder_that_others_can_enter_is_not_trusted();
    garbage_in_the_folder_is_no_record();
    many_at_once_agree();
}
