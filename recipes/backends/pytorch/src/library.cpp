// Headers of shared libraries.
#include <limits>

#include "extent.hpp"

namespace torch_backend {
namespace {

// offset + count * each, or the largest number when that is too large for any file.
std::uint64_t table_size(std::uint64_t count, std::uint64_t each) {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    return each != 0 && count > most / each ? most : count * each;
}

void check_elf(const Extent& library) {
    constexpr std::uint32_t load = 1, dynamic = 2, no_bits = 8;
    constexpr std::uint64_t segment_size = 56, section_size = 64;
    library.require(0, 64, "its header");
    if (library.number<std::uint8_t>(4) != 2 || library.number<std::uint8_t>(5) != 1) {
        library.refuse("not a little-endian library of 64 bits");
    }
    const std::uint64_t segments = library.u64(32), sections = library.u64(40);
    const std::uint16_t segment_count = library.u16(56), section_count = library.u16(60);
    if (library.u16(16) != 3 || library.u16(54) != segment_size || segment_count == 0) {
        library.refuse("damaged: not the header of a shared library");
    }
    library.require(segments, table_size(segment_count, segment_size), "the table of segments");
    bool is_loaded = false;
    for (std::uint64_t at = segments; at < segments + segment_count * segment_size; at += segment_size) {
        const std::uint32_t type = library.u32(at);
        if (type != load && type != dynamic) continue;
        is_loaded = is_loaded || type == load;
        library.require(library.u64(at + 8), library.u64(at + 32), "a segment");
        if (library.u64(at + 32) > library.u64(at + 40)) library.refuse("damaged: a segment does not fit its memory");
    }
    if (!is_loaded) library.refuse("damaged: nothing in it is to be loaded");
    if (section_count == 0) return;
    if (library.u16(58) != section_size) library.refuse("damaged: sections of an unknown kind");
    library.require(sections, table_size(section_count, section_size), "the table of sections");
    for (std::uint64_t at = sections; at < sections + section_count * section_size; at += section_size) {
        if (library.u32(at + 4) == no_bits) continue;
        library.require(library.u64(at + 24), library.u64(at + 32), "a section");
    }
}

// The sections of LC_SEGMENT_64.
void check_segment(const Extent& library, std::uint64_t at, std::uint32_t size) {
    constexpr std::uint64_t header = 72, section = 80;
    if (size < header) library.refuse("damaged: a load command is too short");
    library.require(library.u64(at + 40), library.u64(at + 48), "a segment");
    const std::uint32_t count = library.u32(at + 64);
    if (table_size(count, section) > size - header) library.refuse("damaged: a segment has too many sections");
    for (std::uint64_t each = at + header; each < at + header + count * section; each += section) {
        const std::uint32_t kind = library.u32(each + 64) & 0xff;
        const bool is_zeros = kind == 0x1 || kind == 0xc || kind == 0x12;
        if (!is_zeros) library.require(library.u32(each + 48), library.u64(each + 40), "a section");
    }
}

// A load command: the parts of the file that it names as pairs of offset and size.
void check_command(const Extent& library, std::uint64_t at, std::uint32_t size) {
    const auto pairs = [&](std::uint64_t first, int count) {
        if (size < first + 8U * static_cast<unsigned>(count)) library.refuse("damaged: a load command is too short");
        for (std::uint64_t each = at + first; count > 0; --count, each += 8) {
            library.require(library.u32(each), library.u32(each + 4), "what a load command names");
        }
    };
    constexpr std::uint32_t needed_by_loader = 0x80000000;
    switch (library.u32(at) & ~needed_by_loader) {
        case 0x19:  // LC_SEGMENT_64
            return check_segment(library, at, size);
        case 0x2:  // LC_SYMTAB
            if (size < 24) library.refuse("damaged: a load command is too short");
            library.require(library.u32(at + 8), table_size(library.u32(at + 12), 16), "the table of symbols");
            library.require(library.u32(at + 16), library.u32(at + 20), "the names of symbols");
            return;
        case 0x22:  // LC_DYLD_INFO
            return pairs(8, 5);
        case 0x1d:  // LC_CODE_SIGNATURE
        case 0x1e:  // LC_SEGMENT_SPLIT_INFO
        case 0x26:  // LC_FUNCTION_STARTS
        case 0x29:  // LC_DATA_IN_CODE
        case 0x33:  // LC_DYLD_EXPORTS_TRIE
        case 0x34:  // LC_DYLD_CHAINED_FIXUPS
            return pairs(8, 1);
        default:
            return;
    }
}

void check_mach_o(const Extent& library) {
    constexpr std::uint64_t header = 32;
    library.require(0, header, "its header");
    const std::uint32_t kind = library.u32(12), count = library.u32(16), size = library.u32(20);
    if (kind != 6 && kind != 8) library.refuse("damaged: not the header of a shared library");
    library.require(header, size, "the load commands");
    std::uint64_t at = header;
    const std::uint64_t end = header + size;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (end - at < 8) library.refuse("damaged: the load commands are too short");
        const std::uint32_t length = library.u32(at + 4);
        if (length < 8 || length > end - at) library.refuse("damaged: a load command has a wrong size");
        check_command(library, at, length);
        at += length;
    }
}

}  // namespace

void check_library(const Extent& library) {
    constexpr std::uint32_t elf = 0x464c457f, mach_o = 0xfeedfacf;
    const std::uint32_t magic = library.size() < 4 ? 0 : library.u32(0);
    if (magic == elf) return check_elf(library);
    if (magic == mach_o) return check_mach_o(library);
    library.refuse("neither an ELF nor a Mach-O library");
}

}  // namespace torch_backend
