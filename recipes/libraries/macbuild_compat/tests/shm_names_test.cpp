#include "macbuild/compat/shm_names.hpp"

#include <set>
#include <string>

#include "check.hpp"

using namespace macbuild::compat;

namespace {

void short_keys_are_their_own_names()
{
    CHECK_EQUAL(shm_name("/input_data"), "/input_data");
    CHECK_EQUAL(shm_name("input_data"), "/input_data");
    CHECK_EQUAL(shm_name("///input_data"), "/input_data");
    CHECK_EQUAL(shm_name(std::string(30, 'a')), "/" + std::string(30, 'a'));
}

// From Python: base64.b32encode(hashlib.sha256(body).digest()[:16]).
void other_keys_have_the_documented_names()
{
    CHECK_EQUAL(shm_name(std::string(31, 'a')), "/tsm-mhdawsd5dkjb4c6mtp4fhxna7m");
    CHECK_EQUAL(shm_name("a/b"), "/tsm-yfgn3qbt6zfz32ua5jtvz4uaua");
    CHECK_EQUAL(shm_name("triton_python_backend_shm_region_00000000-0000-4000-8000-000000000000"), "/tsm-6elqgleybprspqkwrgg73y7ele");
    CHECK_EQUAL(shm_name(std::string(1000, 'x')), "/tsm-it4dkreuuw5ahoqxskunh2ofgq");
}

void every_length_gives_one_name_that_darwin_takes()
{
    std::set<std::string> names;
    for (std::size_t length = 1; length <= 300; ++length) {
        const std::string name = shm_name(std::string(length, 'k'));
        CHECK(name.size() <= kLongestShmName);
        CHECK_EQUAL(name.front(), '/');
        CHECK_EQUAL(name.find('/', 1), std::string::npos);
        names.insert(name);
    }
    CHECK_EQUAL(names.size(), 300U);
}

void a_name_is_its_own_key()
{
    for (const std::string key : {"/short", "a/b", "/a long key that is not a name for Darwin"}) {
        CHECK_EQUAL(shm_name(shm_name(key)), shm_name(key));
        CHECK_EQUAL(shm_name("/" + key), shm_name(key));
    }
    CHECK(is_hashed_shm_name(shm_name("a/b")));
    CHECK(!is_hashed_shm_name("/tsm-short"));
    CHECK(!is_hashed_shm_name("/tsm-ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
}

void what_cannot_be_a_key_has_no_name()
{
    CHECK_EQUAL(shm_name(""), "");
    CHECK_EQUAL(shm_name("///"), "");
    CHECK_EQUAL(shm_name(std::string_view("a\0b", 3)), "");
}

}  // namespace

int main()
{
    short_keys_are_their_own_names();
    other_keys_have_the_documented_names();
    every_length_gives_one_name_that_darwin_takes();
    a_name_is_its_own_key();
    what_cannot_be_a_key_has_no_name();
}
