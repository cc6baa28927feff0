#include "archive.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace torch_backend {
namespace {

constexpr std::uint16_t unknown16 = 0xffff;  // the true number is in a record of 64 bits
constexpr std::uint32_t unknown32 = 0xffffffff;

struct Directory {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t members = 0;
};

struct Entry {
    std::string name;
    std::uint16_t flags = 0;
    std::uint16_t method = 0;
    std::uint32_t crc = 0;
    std::uint64_t packed = 0;
    std::uint64_t size = 0;
    std::uint64_t header = 0;
};

using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
    CrcTables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
        tables[0][byte] = value;
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
        for (std::size_t t = 1; t < 8; ++t) {
            tables[t][byte] = (tables[t - 1][byte] >> 8) ^ tables[0][tables[t - 1][byte] & 0xff];
        }
    }
    return tables;
}

// Eight bytes at a time: packages hold gigabytes of weights.
std::uint32_t add_crc(std::uint32_t crc, const unsigned char* bytes, std::size_t size) {
    static constexpr CrcTables tables = make_crc_tables();
    for (; size >= 8; bytes += 8, size -= 8) {
        const std::uint32_t low = crc ^ (bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8 |
                                         static_cast<std::uint32_t>(bytes[2]) << 16 |
                                         static_cast<std::uint32_t>(bytes[3]) << 24);
        crc = tables[7][low & 0xff] ^ tables[6][(low >> 8) & 0xff] ^ tables[5][(low >> 16) & 0xff] ^
              tables[4][low >> 24] ^ tables[3][bytes[4]] ^ tables[2][bytes[5]] ^ tables[1][bytes[6]] ^
              tables[0][bytes[7]];
    }
    for (; size > 0; ++bytes, --size) crc = (crc >> 8) ^ tables[0][(crc ^ *bytes) & 0xff];
    return crc;
}

std::uint32_t crc_of(const Extent& data) {
    constexpr std::uint64_t most = 1 << 20;
    std::vector<unsigned char> buffer(static_cast<std::size_t>(std::min(most, data.size())));
    std::uint32_t crc = ~0U;
    for (std::uint64_t at = 0; at < data.size(); at += buffer.size()) {
        const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), data.size() - at));
        data.read(at, buffer.data(), size);
        crc = add_crc(crc, buffer.data(), size);
    }
    return ~crc;
}

// The record at the end, which only a comment of the length that it tells can follow.
std::uint64_t find_end(const Extent& archive) {
    constexpr std::uint64_t record = 22, longest_comment = 0xffff;
    if (archive.size() < record) archive.refuse("damaged: not a zip archive");
    const std::uint64_t last = archive.size() - record;
    const std::uint64_t first = last > longest_comment ? last - longest_comment : 0;
    std::vector<unsigned char> tail(static_cast<std::size_t>(archive.size() - first));
    archive.read(first, tail.data(), tail.size());
    for (std::uint64_t at = last;; --at) {
        const unsigned char* bytes = tail.data() + (at - first);
        const bool is_signed = bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] == 5 && bytes[3] == 6;
        if (is_signed && bytes[20] + 256U * bytes[21] == last - at) return at;
        if (at == first) archive.refuse("damaged or cut short: not a zip archive");
    }
}

Directory find_directory(const Extent& archive) {
    constexpr std::uint32_t locator_mark = 0x07064b50, wide_mark = 0x06064b50;
    const std::uint64_t end = find_end(archive);
    Directory found{archive.u32(end + 16), archive.u32(end + 12), archive.u16(end + 10)};
    const bool is_wide = found.offset == unknown32 || found.size == unknown32 || found.members == unknown16;
    if (is_wide || (end >= 20 && archive.u32(end - 20) == locator_mark)) {
        if (end < 20 || archive.u32(end - 20) != locator_mark) archive.refuse("damaged: no record of 64 bits");
        const std::uint64_t wide = archive.u64(end - 12);
        archive.require(wide, 56, "the record of 64 bits");
        if (archive.u32(wide) != wide_mark) archive.refuse("damaged: no record of 64 bits");
        found = {archive.u64(wide + 48), archive.u64(wide + 40), archive.u64(wide + 32)};
    }
    archive.require(found.offset, found.size, "the list of members");
    if (found.members > found.size / 46) archive.refuse("damaged: the list of members is too short");
    return found;
}

// Takes the numbers that do not fit into 32 bits from the extra field.
void widen(const Extent& entry, std::uint64_t extra, std::uint64_t length, Entry& member) {
    std::uint64_t* const wanted[] = {&member.size, &member.packed, &member.header};
    const std::uint64_t end = extra + length;
    while (end - extra >= 4) {
        const std::uint16_t kind = entry.u16(extra), size = entry.u16(extra + 2);
        extra += 4;
        if (size > end - extra) entry.refuse("damaged: an extra field is too long");
        std::uint64_t at = extra;
        for (std::uint64_t* const number : wanted) {
            if (kind != 1 || *number != unknown32) continue;
            if (at + 8 > extra + size) entry.refuse("damaged: a size of 64 bits is missing");
            *number = entry.u64(at);
            at += 8;
        }
        extra += size;
    }
}

// The entry of a member in the list; moves `at` to the next.
Entry read_entry(const Extent& list, std::uint64_t& at) {
    constexpr std::uint64_t fixed = 46;
    list.require(at, fixed, "an entry of the list");
    if (list.u32(at) != 0x02014b50) list.refuse("damaged: the list of members has no entry where one must be");
    const std::uint16_t name = list.u16(at + 28), extra = list.u16(at + 30), comment = list.u16(at + 32);
    list.require(at + fixed, std::uint64_t{name} + extra + comment, "an entry of the list");
    Entry member{std::string(name, '\0'), list.u16(at + 8),  list.u16(at + 10), list.u32(at + 16),
                  list.u32(at + 20),       list.u32(at + 24), list.u32(at + 42)};
    list.read(at + fixed, member.name.data(), name);
    widen(list, at + fixed + name, extra, member);
    at += fixed + name + extra + comment;
    return member;
}

// Whether a name stays inside the folder that the archive is unpacked to.
bool is_safe(const std::string& name) {
    if (name.empty() || name.front() == '/' || name.find('\0') != std::string::npos) return false;
    return ("/" + name + "/").find("/../") == std::string::npos && name.find('\\') == std::string::npos;
}

Extent data_of(const Extent& archive, const Directory& directory, const Entry& member) {
    constexpr std::uint64_t fixed = 30;
    if (!is_safe(member.name)) archive.refuse("the name of a member leaves the archive: '" + member.name + "'");
    if ((member.flags & 1) != 0) archive.refuse(member.name + " is encrypted");
    if (member.method != 0) {
        archive.refuse(member.name + " is compressed; PyTorch stores the members of a package as they are");
    }
    archive.require(member.header, fixed, "a member");
    if (archive.u32(member.header) != 0x04034b50 || member.packed != member.size) {
        archive.refuse("damaged: " + member.name + " is not where the list says");
    }
    const std::uint64_t begin =
        member.header + fixed + archive.u16(member.header + 26) + archive.u16(member.header + 28);
    const Extent data = archive.part(begin, member.size, member.name);
    if (begin + member.size > directory.offset) data.refuse("damaged: it runs into the list of members");
    return data;
}

}  // namespace

bool is_library(std::string_view name) {
    return name.ends_with(".so") || name.ends_with(".dylib");
}

std::vector<Member> check_archive(const std::string& path) {
    const Extent archive(path);
    const Directory directory = find_directory(archive);
    const Extent list = archive.part(directory.offset, directory.size, "the list of members");
    std::vector<Member> members;
    std::set<std::string> names;
    std::uint64_t at = 0, total = 0;
    for (std::uint64_t i = 0; i < directory.members; ++i) {
        const Entry entry = read_entry(list, at);
        const Extent data = data_of(archive, directory, entry);
        total += data.size();
        // Members that share their bytes would be read again and again.
        if (total > archive.size()) archive.refuse("damaged: its members overlap");
        if (!names.insert(entry.name).second) archive.refuse("damaged: it has two members " + entry.name);
        if (crc_of(data) != entry.crc) data.refuse("damaged: its checksum is wrong");
        if (is_library(entry.name)) check_library(data);
        members.push_back({entry.name, entry.crc, data});
    }
    return members;
}

}  // namespace torch_backend
