#include "stack.hpp"

#include <mach-o/dyld_images.h>
#include <mach-o/loader.h>
#include <mach/mach.h>
#include <pthread.h>
#include <string.h>
#include <sys/ucontext.h>

#include <atomic>

#include "macbuild/compat/stack_trace.hpp"

namespace macbuild::compat {
namespace {

// Signed return addresses hold the signature above the 47 bits of an address (arm64e code of the system).
constexpr std::uintptr_t address_bits = (std::uintptr_t{1} << 47) - 1;

struct Registers {
    std::uintptr_t instruction;
    std::uintptr_t frame;
    std::uintptr_t stack;
    std::uintptr_t link;  // where a function without a frame returns to; 0 if the machine has it on the stack
};

Registers registers_of(const void* context) noexcept {
    const auto& state = static_cast<const ucontext_t*>(context)->uc_mcontext->__ss;
#if defined(__arm64__)
    return {static_cast<std::uintptr_t>(__darwin_arm_thread_state64_get_pc(state)),
            static_cast<std::uintptr_t>(__darwin_arm_thread_state64_get_fp(state)),
            static_cast<std::uintptr_t>(__darwin_arm_thread_state64_get_sp(state)),
            static_cast<std::uintptr_t>(__darwin_arm_thread_state64_get_lr(state))};
#else
    return {static_cast<std::uintptr_t>(state.__rip), static_cast<std::uintptr_t>(state.__rbp),
            static_cast<std::uintptr_t>(state.__rsp), 0};
#endif
}

// The return address of the interrupted code, if its frame record does not have it; 0 if it does.
std::uintptr_t caller_of(const Registers& registers, std::uintptr_t low, std::uintptr_t high) noexcept {
    Image image;
    if (registers.link != 0 || find_image(registers.instruction, image)) {
        return registers.link;
    }
    // A jump to an invalid address: the call has put the return address on the stack and no frame was made.
    const bool readable = registers.stack >= low && registers.stack < high
                          && high - registers.stack >= sizeof(std::uintptr_t)
                          && registers.stack % alignof(std::uintptr_t) == 0;
    return readable ? *reinterpret_cast<const std::uintptr_t*>(registers.stack) : 0;
}

std::atomic<const dyld_all_image_infos*> list_of_images{nullptr};

// dyld's own list, which debuggers and crash reporters read (mach-o/dyld_images.h). It is read without dyld's lock; dyld
// clears the pointer to it while changing it.
const dyld_all_image_infos* image_list() noexcept {
    static_assert(std::atomic<const dyld_all_image_infos*>::is_always_lock_free);
    if (const dyld_all_image_infos* known = list_of_images.load(); known != nullptr) {
        return known;
    }
    task_dyld_info info{};
    mach_msg_type_number_t count = TASK_DYLD_INFO_COUNT;
    if (task_info(mach_task_self(), TASK_DYLD_INFO, reinterpret_cast<task_info_t>(&info), &count) != KERN_SUCCESS) {
        return nullptr;
    }
    const auto* list =
        reinterpret_cast<const dyld_all_image_infos*>(static_cast<std::uintptr_t>(info.all_image_info_addr));
    list_of_images.store(list);
    return list;
}

// Returns whether an address is in the code of an image: the segment that has the header.
bool has_code(const mach_header* header, std::uintptr_t address) noexcept {
    const auto base = reinterpret_cast<std::uintptr_t>(header);
    if (address < base || header->magic != MH_MAGIC_64) {
        return false;
    }
    const auto* command = reinterpret_cast<const load_command*>(base + sizeof(mach_header_64));
    for (std::uint32_t index = 0; index < header->ncmds; ++index) {
        if (command->cmd == LC_SEGMENT_64) {
            const auto* segment = reinterpret_cast<const segment_command_64*>(command);
            if (strcmp(segment->segname, SEG_TEXT) == 0) {
                return address - base < segment->vmsize;
            }
        }
        command = reinterpret_cast<const load_command*>(reinterpret_cast<std::uintptr_t>(command) + command->cmdsize);
    }
    return false;
}

void set_image(const char* path, const mach_header* header, Image& image) noexcept {
    image.base = reinterpret_cast<std::uintptr_t>(header);
    strlcpy(image.path, path == nullptr ? "?" : path, sizeof(image.path));
}

}  // namespace

// All code of macOS keeps frame records (Apple, "Writing ARM64 code for Apple platforms"; clang's default on x86_64), so
// a signal handler needs neither unwind tables nor their caches and locks. backtrace(3) would refuse the stack that the
// handler itself runs on.
std::size_t read_stack(const void* context, std::uintptr_t* addresses, std::size_t room) noexcept {
    if (room == 0) {
        return 0;
    }
    const pthread_t self = pthread_self();
    const auto high = reinterpret_cast<std::uintptr_t>(pthread_get_stackaddr_np(self));
    const std::uintptr_t low = high - pthread_get_stacksize_np(self);
    std::size_t count = 0;
    auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (context != nullptr) {
        const Registers registers = registers_of(context);
        addresses[count++] = registers.instruction;
        const std::uintptr_t caller = caller_of(registers, low, high);
        if (caller != 0 && room > 1) {
            addresses[count++] = caller;
        }
        frame = registers.frame;
    }
    count += follow_frames(frame, low, high, addresses + count, room - count);
    for (std::size_t index = 0; index < count; ++index) {
        addresses[index] &= address_bits;
    }
    return count;
}

bool find_image(std::uintptr_t address, Image& image) noexcept {
    const dyld_all_image_infos* list = image_list();
    const dyld_image_info* images = list == nullptr ? nullptr : list->infoArray;
    if (images == nullptr) {
        return false;
    }
    for (std::uint32_t index = 0; index < list->infoArrayCount; ++index) {
        if (has_code(images[index].imageLoadAddress, address)) {
            set_image(images[index].imageFilePath, images[index].imageLoadAddress, image);
            return true;
        }
    }
    if (list->dyldImageLoadAddress != nullptr && has_code(list->dyldImageLoadAddress, address)) {
        set_image("/usr/lib/dyld", list->dyldImageLoadAddress, image);
        return true;
    }
    return false;
}

}  // namespace macbuild::compat
