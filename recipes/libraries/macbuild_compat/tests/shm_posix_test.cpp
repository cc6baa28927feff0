// The calls of foreign code, and mapping with pages of 16 KiB on a machine with other pages.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "check.hpp"
#include "macbuild/compat/pages.hpp"
#include "macbuild/compat/posix.h"
#include "macbuild/compat/private_dir.hpp"
#include "macbuild/compat/shm_registry.hpp"
#include "../src/portable/mapping.hpp"

using namespace macbuild::compat;

namespace {

constexpr std::size_t kPage = 16384;

void offsets_of_linux_are_taken_and_others_refused()
{
    const auto window = map_window(5 * 4096, 100, kPage);
    CHECK(window && window->offset == static_cast<off_t>(kPage) && window->skip == 4096 && window->length == 4196);
    CHECK(map_window(2 * kPage, 1, kPage)->skip == 0);
    CHECK(page_size() >= kLinuxPage && page_size() % kLinuxPage == 0);
    CHECK(map_window(4096, 1, 4096)->skip == 0);
    CHECK(!map_window(100, 1, kPage));
    CHECK(!map_window(-4096, 1, kPage));
    CHECK(!map_window(4096, std::numeric_limits<std::size_t>::max() - 100, kPage));
}

void mapping_between_pages_shows_the_right_bytes()
{
    char path[] = "/tmp/macbuild-compat-test-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0 && ftruncate(file, 4 * kPage) == 0);
    CHECK(pwrite(file, "here", 4, 5 * 4096) == 4);
    void* const part = map_region(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 5 * 4096, kPage);
    CHECK(part != MAP_FAILED);
    CHECK_EQUAL(std::memcmp(part, "here", 4), 0);
    std::memcpy(part, "gone", 4);
    char back[4];
    CHECK(pread(file, back, 4, 5 * 4096) == 4 && std::memcmp(back, "gone", 4) == 0);
    // A part of it cannot be unmapped: the pages before and after would go too.
    CHECK(unmap_region(part, 2048) == -1 && errno == EINVAL);
    CHECK_EQUAL(unmap_region(part, 4096), 0);
    // The whole mapping is gone, including the page where it starts.
    CHECK(msync(static_cast<char*>(part) - 4096, 4096, MS_ASYNC) == -1 && errno == ENOMEM);
    CHECK(map_region(nullptr, 10, PROT_READ, MAP_SHARED, file, 7, kPage) == MAP_FAILED && errno == EINVAL);
    void* const whole = map_region(nullptr, kPage, PROT_READ, MAP_SHARED, file, 2 * kPage, kPage);
    CHECK(whole != MAP_FAILED && unmap_region(whole, kPage) == 0);
    close(file);
}

void a_size_given_again_is_no_error_for_a_region()
{
    CHECK(has_room(true, kPage, 100));
    CHECK(has_room(true, kPage, kPage));
    CHECK(!has_room(true, kPage, kPage + 1));
    CHECK(!has_room(true, kPage, -1));
    CHECK(!has_room(false, kPage, 100));
}

void the_calls_do_what_those_of_linux_do()
{
    const std::string key = "/mbtest-" + std::to_string(getpid()) + "/a key that Darwin's kernel would refuse";
    CHECK(macbuild_compat_shm_open(key.c_str(), O_RDWR, 0) == -1 && errno == ENOENT);
    const int region = macbuild_compat_shm_open(key.c_str(), O_CREAT | O_RDWR | O_EXCL, 0640);
    CHECK(region >= 0);
    struct stat facts{};
    CHECK(macbuild_compat_ftruncate(region, 8192) == 0 && fstat(region, &facts) == 0);
    CHECK(facts.st_size >= 8192);
    CHECK_EQUAL(facts.st_mode & 0777, 0640U);
    void* const second = macbuild_compat_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region, 4096);
    CHECK(second != MAP_FAILED && macbuild_compat_munmap(second, 4096) == 0);
    CHECK(macbuild_compat_ftruncate(region, -1) == -1 && errno == EINVAL);
    CHECK(macbuild_compat_shm_open("/", O_CREAT | O_RDWR, 0600) == -1 && errno == EINVAL);
    bool listed = false;
    for (const Region& one : ShmRegistry::of_user().list())
        listed = listed || one.key == key.substr(1);
    CHECK(listed);
    close(region);
    CHECK_EQUAL(macbuild_compat_shm_unlink(key.c_str()), 0);
    CHECK(macbuild_compat_shm_unlink(key.c_str()) == -1 && errno == ENOENT);
}

}  // namespace

int main()
{
    char temporary[] = "/tmp/macbuild-compat-test-XXXXXX";
    CHECK(mkdtemp(temporary) != nullptr && setenv("TMPDIR", temporary, 1) == 0);
    umask(0);
    offsets_of_linux_are_taken_and_others_refused();
    mapping_between_pages_shows_the_right_bytes();
    a_size_given_again_is_no_error_for_a_region();
    the_calls_do_what_those_of_linux_do();
    remove_flat_dir(user_temp_dir() + "/macbuild-shm-" + std::to_string(geteuid()));
    rmdir(temporary);
}
