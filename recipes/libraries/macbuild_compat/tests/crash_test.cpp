// Crashes of child processes: the trace, the way they die, and that nothing is allocated meanwhile.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "macbuild/compat/libraries.hpp"
#include "macbuild/compat/signals.hpp"
#include "macbuild/compat/stack_trace.hpp"

namespace compat = macbuild::compat;

static volatile bool crashing = false;

#ifdef __linux__
// The program's own malloc reports calls during the crash (glibc lets it be replaced).
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) {
    if (crashing) {
        constexpr char text[] = "MALLOC\n";
        [[maybe_unused]] const ssize_t count = write(STDERR_FILENO, text, sizeof(text) - 1);
    }
    return __libc_malloc(size);
}
#endif

namespace {

int* volatile nowhere = nullptr;
void (*volatile no_function)() = nullptr;
volatile int depth = 0;

__attribute__((noinline)) void write_to_nowhere() {
    *nowhere = 1;
    depth = depth + 1;
}

__attribute__((noinline)) void caller() {
    write_to_nowhere();
    depth = depth + 1;
}

__attribute__((noinline)) void jump_to_nowhere() {
    no_function();
    depth = depth + 1;
}

__attribute__((noinline)) void overflow(int step) {
    volatile char room[4096];
    room[step % 4096] = 1;
    if (depth >= 0) {
        overflow(step + 1);
    }
    depth = depth + room[0];
}

// Beyond the end of a file there is no memory, although there are addresses.
__attribute__((noinline)) void read_behind_a_file() {
    std::FILE* file = std::tmpfile();
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto* memory = static_cast<volatile char*>(mmap(nullptr, page, PROT_READ, MAP_SHARED, fileno(file), 0));
    crashing = true;
    depth = memory[0];
}

void print_place(const char* name, void (*function)()) {
    const auto address = reinterpret_cast<std::uintptr_t>(function);
    compat::Image image;
    CHECK(compat::find_image(address, image));
    std::printf("%s %lx\n", name, static_cast<unsigned long>(address - image.base));
    std::fflush(stdout);
}

void handler_of_the_server(int) {
    constexpr char text[] = "HANDLER\n";
    [[maybe_unused]] const ssize_t count = write(STDERR_FILENO, text, sizeof(text) - 1);
}

[[noreturn]] void play(const std::string& part) {
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT}) {
        CHECK(compat::trace_crash(signal));
    }
    if (part == "signal") {
        CHECK(macbuild_compat_signal(SIGABRT, handler_of_the_server) != SIG_ERR);
        CHECK(macbuild_compat_signal(SIGSEGV, handler_of_the_server) != SIG_ERR);
    }
    print_place("write_to_nowhere", write_to_nowhere);
    print_place("caller", caller);
    print_place("jump_to_nowhere", jump_to_nowhere);
    crashing = part != "bus" && part != "thread" && part != "threads" && part != "overflow-thread";
    if (part == "segv" || part == "signal") {
        caller();
    } else if (part == "null") {
        jump_to_nowhere();
    } else if (part == "abort") {
        std::abort();
    } else if (part == "trap") {
        __builtin_trap();
    } else if (part == "overflow") {
        overflow(0);
    } else if (part == "bus") {
        read_behind_a_file();
    } else if (part == "thread") {
        std::thread([] {
            crashing = true;
            caller();
        }).join();
    } else if (part == "overflow-thread") {
        std::thread([] {
            const compat::AlternateStack stack;
            crashing = true;
            overflow(0);
        }).join();
    } else if (part == "threads") {
        std::vector<std::thread> threads;
        for (int index = 0; index < 16; ++index) {
            threads.emplace_back(caller);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    } else if (part == "kill") {
        kill(getpid(), SIGSEGV);
        pause();
    }
    std::exit(0);
}

check::End crash(const char* part, int signal) {
    const check::End end = check::wait_for(check::start({part}));
    const bool right = WIFSIGNALED(end.status) && WTERMSIG(end.status) == signal;
    if (!right) {
        std::fprintf(stderr, "%s: status %x, output:\n%s\n", part, end.status, end.output.c_str());
    }
    CHECK(right);
    CHECK(end.output.find("MALLOC") == std::string::npos);
    const std::string headline = "*** signal " + std::to_string(signal) + " (SIG";
    CHECK(end.output.find(headline) != std::string::npos);
    CHECK(end.output.find("*** signal", end.output.find(headline) + 1) == std::string::npos);
    return end;
}

// The number after a text, in base 16; the test ends if the text is missing.
unsigned long number_after(const std::string& output, const std::string& text, std::size_t from = 0) {
    const std::size_t place = output.find(text, from);
    CHECK(place != std::string::npos);
    return std::stoul(output.substr(place + text.size()), nullptr, 16);
}

// Returns whether a frame of the trace is inside a function that the child has named.
bool has_frame(const std::string& output, const std::string& function) {
    const unsigned long begin = number_after(output, function + " ");
    const std::string mark = compat::executable_path() + " + 0x";
    for (std::size_t at = output.find(mark); at != std::string::npos; at = output.find(mark, at + 1)) {
        const unsigned long offset = number_after(output, mark, at);
        if (offset >= begin && offset < begin + 64) {
            return true;
        }
    }
    return false;
}

void tells_where_and_dies_of_it() {
    for (const char* part : {"segv", "thread"}) {
        const check::End end = crash(part, SIGSEGV);
        CHECK(end.output.find(" at address 0x0 in process ") != std::string::npos);
        const std::size_t first = end.output.find("    0  0x");
        CHECK(first != std::string::npos);
        const unsigned long begin = number_after(end.output, "write_to_nowhere ");
        const unsigned long offset = number_after(end.output, " + 0x", first);
        CHECK(offset >= begin && offset < begin + 64);
        CHECK(has_frame(end.output, "caller"));
    }
}

void knows_the_kinds_of_crash() {
    CHECK(crash("abort", SIGABRT).output.find(" at address ") == std::string::npos);
    CHECK(crash("kill", SIGSEGV).output.find(" at address ") == std::string::npos);
    CHECK(crash("bus", SIGBUS).output.find(" at address 0x") != std::string::npos);
    const check::End nothing = crash("null", SIGSEGV);
    CHECK(nothing.output.find("    0  0x000000000000\n") != std::string::npos);
    CHECK(has_frame(nothing.output, "jump_to_nowhere"));
#if defined(__x86_64__)
    crash("trap", SIGILL);
#else
    crash("trap", SIGTRAP);
#endif
}

void tells_of_a_stack_that_is_full() {
    const check::End end = crash("overflow", SIGSEGV);
    CHECK(end.output.find("  127  0x") != std::string::npos);
    CHECK(end.output.find("  128  0x") == std::string::npos);
    crash("overflow-thread", SIGSEGV);
}

void one_of_many_threads_tells() {
    for (int turn = 0; turn < 10; ++turn) {
        crash("threads", SIGSEGV);
    }
}

void a_handler_of_the_server_is_not_called() {
    CHECK(crash("signal", SIGSEGV).output.find("HANDLER") == std::string::npos);
}

void refuses_what_is_no_crash() {
    for (const int signal : {SIGTERM, SIGKILL, 0, -1, 1000}) {
        CHECK(!compat::trace_crash(signal));
        CHECK_EQUAL(errno, EINVAL);
    }
}

}  // namespace

int main(int count, char** words) {
    if (count > 1) {
        play(words[1]);
    }
    tells_where_and_dies_of_it();
    knows_the_kinds_of_crash();
    tells_of_a_stack_that_is_full();
    one_of_many_threads_tells();
    a_handler_of_the_server_is_not_called();
    refuses_what_is_no_crash();
}
