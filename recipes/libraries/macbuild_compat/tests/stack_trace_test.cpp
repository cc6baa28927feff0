// Stack traces outside of signals: the chain of frames, and the images.
#include "macbuild/compat/stack_trace.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>

#include "check.hpp"
#include "macbuild/compat/libraries.hpp"

namespace compat = macbuild::compat;

namespace {

// A stack of frame records: word 2n is the address of the next record, word 2n + 1 the return address.
struct Stack {
    std::uintptr_t words[16] = {};

    std::uintptr_t at(std::size_t record) const { return reinterpret_cast<std::uintptr_t>(&words[2 * record]); }
    void link(std::size_t record, std::uintptr_t next, std::uintptr_t back) {
        words[2 * record] = next;
        words[2 * record + 1] = back;
    }
    std::size_t follow(std::uintptr_t* found, std::size_t room) const {
        return compat::follow_frames(at(0), at(0), at(8), found, room);
    }
};

void follows_a_chain_to_its_end() {
    Stack stack;
    stack.link(0, stack.at(1), 0x100);
    stack.link(1, stack.at(4), 0x200);
    stack.link(4, 0, 0x300);
    std::uintptr_t found[8];
    CHECK_EQUAL(stack.follow(found, 8), 3U);
    CHECK(found[0] == 0x100 && found[1] == 0x200 && found[2] == 0x300);
}

void stops_where_there_is_no_room() {
    Stack stack;
    stack.link(0, stack.at(1), 0x100);
    stack.link(1, stack.at(2), 0x200);
    stack.link(2, stack.at(3), 0x300);
    std::uintptr_t found[2];
    CHECK_EQUAL(stack.follow(found, 2), 2U);
    CHECK_EQUAL(stack.follow(found, 0), 0U);
}

void stops_at_what_is_no_frame() {
    std::uintptr_t found[8];
    Stack stack;
    for (const std::uintptr_t bad : {stack.at(0), stack.at(1) + 1, stack.at(0) - 64, stack.at(8), std::uintptr_t{8}}) {
        stack.link(0, bad, 0x100);
        CHECK_EQUAL(stack.follow(found, 8), 1U);
    }
    stack.link(0, stack.at(7) + sizeof(std::uintptr_t), 0x100);  // half a record before the end
    CHECK_EQUAL(stack.follow(found, 8), 1U);
    stack.link(0, stack.at(2), 0x100);
    stack.link(2, stack.at(1), 0x200);  // back down: a circle
    CHECK_EQUAL(stack.follow(found, 8), 2U);
    stack.link(2, stack.at(3), 0);
    CHECK_EQUAL(stack.follow(found, 8), 1U);
}

void finds_the_image_of_an_address() {
    compat::Image image;
    const std::string program = compat::executable_path();
    CHECK(compat::find_image(reinterpret_cast<std::uintptr_t>(&finds_the_image_of_an_address), image));
    CHECK_EQUAL(compat::image_path(reinterpret_cast<const void*>(&finds_the_image_of_an_address)), program);
    Dl_info known;
    CHECK(dladdr(reinterpret_cast<const void*>(&finds_the_image_of_an_address), &known) != 0);
    CHECK_EQUAL(image.base, reinterpret_cast<std::uintptr_t>(known.dli_fbase));
    // A function of the system, in another image.
    void* function = dlsym(RTLD_DEFAULT, "getpid");
    CHECK(dladdr(function, &known) != 0);
    CHECK(compat::find_image(reinterpret_cast<std::uintptr_t>(function), image));
    CHECK_EQUAL(image.base, reinterpret_cast<std::uintptr_t>(known.dli_fbase));
    CHECK(compat::image_path(function) != program);
    CHECK(!compat::find_image(8, image));
    CHECK_EQUAL(compat::image_path(nullptr), "");
}

void text_and_output_name_the_program() {
    const std::string program = compat::executable_path();
    const std::string text = compat::stack_trace();
    CHECK(text.starts_with("    0  0x"));
    CHECK(text.find(program + " + 0x") != std::string::npos);
    int ends[2];
    CHECK(pipe(ends) == 0);
    compat::write_stack_trace(ends[1]);
    close(ends[1]);
    std::string written;
    char part[4096];
    for (ssize_t count = 0; (count = read(ends[0], part, sizeof(part))) > 0;) {
        written.append(part, static_cast<std::size_t>(count));
    }
    CHECK(written.starts_with("    0  0x"));
    CHECK(written.find(program + " + 0x") != std::string::npos);
}

}  // namespace

int main() {
    follows_a_chain_to_its_end();
    stops_where_there_is_no_room();
    stops_at_what_is_no_frame();
    finds_the_image_of_an_address();
    text_and_output_name_the_program();
}
