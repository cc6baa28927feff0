#include "stack.hpp"

#include <fcntl.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "macbuild/compat/stack_trace.hpp"

namespace macbuild::compat {
namespace {

struct Walk {
    std::uintptr_t* addresses;
    std::size_t room;
    std::size_t count;
    bool waiting;  // for `first`; the frames before it are the handler's own
    std::uintptr_t first;
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
    Walk& walk = *static_cast<Walk*>(argument);
    const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
    if (walk.waiting && address != walk.first) {
        return _URC_NO_REASON;
    }
    walk.waiting = false;
    if (walk.count == walk.room) {
        return _URC_END_OF_STACK;
    }
    walk.addresses[walk.count++] = address;
    return _URC_NO_REASON;
}

std::uintptr_t instruction_of(const ucontext_t& context) noexcept {
#if defined(__x86_64__)
    return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return static_cast<std::uintptr_t>(context.uc_mcontext.pc);
#endif
}

// The return address of a function that has not begun.
std::uintptr_t caller_of(const ucontext_t& context) noexcept {
#if defined(__x86_64__)
    return *reinterpret_cast<const std::uintptr_t*>(context.uc_mcontext.gregs[REG_RSP]);
#elif defined(__aarch64__)
    return static_cast<std::uintptr_t>(context.uc_mcontext.regs[30]);
#endif
}

// Reads /proc/self/maps character by character (proc(5)).
class Maps {
public:
    Maps() noexcept : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
    ~Maps() {
        if (file_ >= 0) {
            close(file_);
        }
    }
    Maps(const Maps&) = delete;
    Maps& operator=(const Maps&) = delete;

    // The next character, or 0 at the end.
    char next() noexcept {
        if (position_ == size_) {
            const ssize_t count = file_ < 0 ? 0 : read(file_, buffer_, sizeof(buffer_));
            if (count <= 0) {
                return '\0';
            }
            size_ = static_cast<std::size_t>(count);
            position_ = 0;
        }
        return buffer_[position_++];
    }

    // A number; also consumes the character after it.
    std::uintptr_t number(unsigned base) noexcept {
        std::uintptr_t value = 0;
        for (;;) {
            const char letter = next();
            const unsigned digit = letter >= '0' && letter <= '9'   ? static_cast<unsigned>(letter - '0')
                                   : letter >= 'a' && letter <= 'f' ? static_cast<unsigned>(letter - 'a' + 10)
                                                                    : 16;
            if (digit >= base) {
                last_ = letter;
                return value;
            }
            value = value * base + digit;
        }
    }

    bool ended() const noexcept { return last_ == '\0'; }
    bool line_ended() const noexcept { return last_ == '\n' || last_ == '\0'; }

    void skip_word() noexcept {
        do {
            last_ = next();
        } while (last_ != ' ' && last_ != '\n' && last_ != '\0');
    }

    // The rest of the line without leading blanks.
    void rest(char* text, std::size_t room) noexcept {
        std::size_t size = 0;
        while (!line_ended()) {
            last_ = next();
            if (!line_ended() && (last_ != ' ' || size != 0) && size + 1 < room) {
                text[size++] = last_;
            }
        }
        text[size] = '\0';
    }

private:
    int file_;
    std::size_t position_ = 0;
    std::size_t size_ = 0;
    char last_ = '\n';
    char buffer_[1024];
};

}  // namespace

std::size_t read_stack(const void* context, std::uintptr_t* addresses, std::size_t room) noexcept {
    if (context == nullptr) {
        Walk walk{addresses, room, 0, false, 0};
        _Unwind_Backtrace(step, &walk);
        return walk.count;
    }
    Image image;
    const auto* machine = static_cast<const ucontext_t*>(context);
    const std::uintptr_t instruction = instruction_of(*machine);
    if (find_image(instruction, image)) {
        Walk walk{addresses, room, 0, true, instruction};
        _Unwind_Backtrace(step, &walk);
        return walk.count;
    }
    // A jump to an invalid address, for which there is no unwind table: only the caller is known.
    const std::uintptr_t known[] = {instruction, caller_of(*machine)};
    std::size_t count = 0;
    while (count < room && count < 2) {
        addresses[count] = known[count];
        ++count;
    }
    return count;
}

bool find_image(std::uintptr_t address, Image& image) noexcept {
    Maps maps;
    std::uintptr_t base = 0;
    std::uintptr_t file = 0;
    for (;;) {
        const std::uintptr_t begin = maps.number(16);
        if (maps.ended()) {
            return false;
        }
        const std::uintptr_t end = maps.number(16);
        maps.skip_word();
        const std::uintptr_t offset = maps.number(16);
        maps.skip_word();
        const std::uintptr_t inode = maps.number(10);
        if (offset == 0 || inode != file) {
            base = begin;
            file = inode;
        }
        maps.rest(image.path, sizeof(image.path));
        if (address >= begin && address < end) {
            image.base = base;
            return image.path[0] == '/';
        }
    }
}

}  // namespace macbuild::compat
