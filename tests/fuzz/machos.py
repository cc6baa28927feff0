"""Make small Mach-O files for the seeds: `tests.support.machobytes` with more link-edit data, other CPUs and kinds."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from macbuild.macho.sign import SignOptions, sign_bytes
from tests.support import machobytes

X86_64, ARM64 = 0x01000007, 0x0100000C
ENTITLEMENTS = b'<plist version="1.0"><dict><key>a</key><array><integer>7</integer></array></dict></plist>'
INFO = b'<plist version="1.0"><dict><key>CFBundleIdentifier</key><string>org.example.x</string></dict></plist>'
DYLIBS = ("/usr/lib/libSystem.B.dylib", "@rpath/libgood.dylib", "/opt/llvm-openmp/lib/libomp.dylib")
RPATHS = ("@loader_path", "/Users/me/lib", "@loader_path")


def dylib(**options: object) -> bytes:
    """Return a dylib of about 4.5 kB; options are those of `machobytes.dylib`."""
    settings: dict[str, object] = {"room": 160, "dylibs": DYLIBS, "rpaths": RPATHS, "minos": "10.10", **options}
    return machobytes.dylib("x86_64", **settings)  # type: ignore[arg-type]


def arm(image: bytes) -> bytes:
    """Return an unsigned image changed to arm64, with the small pages of Intel."""
    return image[:4] + struct.pack("<2I", ARM64, 0) + image[12:]


def kind(image: bytes, filetype: int) -> bytes:
    """Return an image with another file type."""
    return image[:12] + struct.pack("<I", filetype) + image[16:]


def attach(image: bytes, content: bytes, *commands: Sequence[int]) -> bytes:
    """Append link-edit content, and load commands in whose fields a negative number -N is its offset plus N - 1.

    A command replaces one with the same number.
    """
    at = len(image)
    data = bytearray(image + content)
    size_at = 32 + 152 + 48  # filesize of __LINKEDIT, the second command
    struct.pack_into("<Q", data, size_at, struct.unpack_from("<Q", data, size_at)[0] + len(content))
    for number, *rest in commands:
        fields = [at - 1 - value if value < 0 else value for value in rest]
        body = struct.pack(f"<{2 + len(fields)}I", number, 8 + 4 * len(fields), *fields)
        place = _find(data, number)
        if place is None:
            count, size = struct.unpack_from("<2I", data, 16)
            place = 32 + size
            struct.pack_into("<2I", data, 16, count + 1, size + len(body))
        data[place : place + len(body)] = body
    return bytes(data)


def _find(data: bytearray, number: int) -> int | None:
    at = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        cmd, size = struct.unpack_from("<2I", data, at)
        if cmd == number:
            return at
        at += size
    return None


def with_symbols() -> bytes:
    """Return an image with a symbol table: undefined, weak, defined, local and debugging entries."""
    strings = b" \0_puts\0_f\0_omp_get\0_local\0".ljust(32, b"\0")
    rows = [(2, 1, 0, 0x100), (8, 0xF, 1, 0x80), (11, 1, 0, 0x340), (20, 0xE, 1, 0), (2, 0x24, 1, 0), (8, 1, 0, 0xFE00)]
    table = b"".join(struct.pack("<IBBHQ", *row, 0x10 if row[1] & 0xE else 0) for row in rows)
    return attach(dylib(exports=()), table + strings, (0x2, -1, len(rows), -1 - len(table), len(strings)))


def with_opcodes() -> bytes:
    """Return an image with LC_DYLD_INFO_ONLY: bind, weak bind and lazy bind streams, and a trie with a re-export."""
    bind = b"\x11\x40_puts\0\x51\x72\x10\x90\x20\x83\x00\x40_omp\0\x60\x7f\xa0\x02\xc0\x02\x08\x00".ljust(40, b"\0")
    weak = b"\x40_weak\0\x51\x72\x00\x90\x00".ljust(16, b"\0")
    lazy = b"\x72\x18\x12\x40_lazy\0\x90\x00\x72\x20\x3e\x40_flat\0\x90\x00".ljust(32, b"\0")
    trie = b"\0\2_a\0\x0b_b\0\x11\0\4\x04\x10\x00\x00\x06\x08\x01_c\0\0\0".ljust(32, b"\0")
    at, fields = -1, []
    for part in (b"", bind, weak, lazy, trie):
        fields += [at if part else 0, len(part)]
        at -= len(part)
    return attach(dylib(exports=()), bind + weak + lazy + trie, (0x80000022, *fields))


def exporting(
    names: Mapping[str, bool],
    *,
    slots: Sequence[str] = (),
    weak: bytes = b"",
    rebase: bytes = b"\x11\x20\x00\x58\x00",
    bind: bytes = b"",
    arch: str = "x86_64",
) -> bytes:
    """Return an unsigned image that exports names, by symbol table and trie; the value says whether one is weak.

    `slots` are the names whose addresses are in the words at `slot_offset`, `weak` the weak bind opcodes. A zero byte
    in `weak` or `rebase` after 0x20 or 0x70 is replaced by that offset. Each name has an indirect symbol.
    """
    values = {name: 0x100 + 0x10 * index for index, name in enumerate(names)}
    text = b"".join(struct.pack("<Q", values[name]) for name in slots).ljust(64, b"\0")
    image = machobytes.dylib(arch, exports=(), text=text, room=512)
    image = image.replace(struct.pack("<2I", 0x80000033, 16), struct.pack("<2I", 0x2A, 16))
    offset = slot_offset(image)
    rows = [("_local", 0x0E, 0, 0x20), *((name, 0x0F, 0x80 * names[name], values[name]) for name in names)]
    rows.append(("_puts", 0x01, 0x100, 0))
    strings, table = b"\0", b""
    for name, kind, desc, value in rows:
        table += struct.pack("<IBBHQ", len(strings), kind, kind > 1, desc, value)
        strings += name.encode() + b"\0"
    indirect = struct.pack(f"<{len(rows) + 1}I", *range(len(rows)), 0x80000000)
    parts = [_at(rebase, 0x20, offset), bind, _at(weak, 0x70, offset), b"", _plain_trie(names, values)]
    parts = [part + bytes(-len(part) % 8) for part in parts]
    at, fields = -1, []
    for part in parts:
        fields += [at if part else 0, len(part)]
        at -= len(part)
    symbols_at, indirect_at = at, at - len(table)
    dynamic = [0, 1, 1, len(names), 1 + len(names), 1, *[0] * 6, indirect_at, len(rows) + 1, 0, 0, 0, 0]
    return attach(
        image,
        b"".join(parts) + table + indirect + strings,
        (0x80000022, *fields),
        (0x2, symbols_at, len(rows), indirect_at - len(indirect), len(strings)),
        (0xB, *dynamic),
    )


def slot_offset(image: bytes) -> int:
    """Return where the section of an image of `exporting` starts, which is in its first segment."""
    return int(struct.unpack_from("<I", image, 32 + 72 + 48)[0])


def _at(opcodes: bytes, opcode: int, offset: int) -> bytes:
    return opcodes.replace(bytes([opcode, 0]), bytes([opcode, offset & 0x7F | 0x80, offset >> 7]))


def _plain_trie(names: Mapping[str, bool], values: Mapping[str, int]) -> bytes:
    """Write a trie whose root has one edge per name, as no linker does; offsets take two bytes."""
    child = 2 + sum(len(name) + 3 for name in names)
    root, nodes = bytearray([0, len(names)]), b""
    for name, weak in names.items():
        place = child + len(nodes)
        root += name.encode() + bytes([0, place & 0x7F | 0x80, place >> 7])
        nodes += bytes([3, 4 * weak, values[name] & 0x7F | 0x80, values[name] >> 7, 0])
    return bytes(root) + nodes if names else b""


def with_fixups(form: int) -> bytes:
    """Return an image with chained fixups of one of the three import formats."""
    names = b"\0_puts\0_omp\0_flat\0".ljust(24, b"\0")
    table = b""
    for ordinal, name in ((1, 1), (3, 7), (-2, 12)):
        if form == 3:
            table += struct.pack("<QQ", ordinal & 0xFFFF | name << 32, 0)
        else:
            table += struct.pack("<I", ordinal & 0xFF | name << 9) + (bytes(4) if form == 2 else b"")
    content = struct.pack("<8I", 0, 28, 32, 32 + len(table), 3, form, 0, 0) + table + names
    return attach(dylib(exports=()), content, (0x80000034, -1, len(content)))


def with_section(name: bytes, content: bytes) -> bytes:
    """Return an image whose only section, with this content, has another name."""
    data = bytearray(dylib(text=content))
    data[32 + 72 : 32 + 88] = name.ljust(16, b"\0")
    return bytes(data)


def signed(image: bytes, **options: object) -> bytes:
    """Return the image signed as codesign does."""
    return sign_bytes(image, "libx.dylib", SignOptions(**options))  # type: ignore[arg-type]


def fat(*images: bytes, wide: bool = False, magic: int | None = None) -> bytes:
    """Put images into a universal file, aligned to 4096 bytes."""
    layout = ">2I2Q2I" if wide else ">5I"
    header = struct.pack(">2I", magic or (0xCAFEBABF if wide else 0xCAFEBABE), len(images))
    body = b""
    for image in images:
        body += bytes(-len(body) % 4096)
        cpu = struct.unpack_from("<2I", image, 4)
        header += struct.pack(layout, *cpu, 4096 + len(body), len(image), 12, *([0] if wide else []))
        body += image
    return header.ljust(4096, b"\0") + body


def looping_trie() -> bytes:
    """Return an image whose export trie leads back to its root."""
    trie = b"\0\1_a\0\0".ljust(8, b"\0")
    return attach(dylib(exports=()), trie, (0x80000033, -1, len(trie)))


def overlapping_fat() -> bytes:
    """Return a universal file whose two slices are the same bytes."""
    image = signed(dylib())
    both = bytearray(fat(image, arm(image)))
    struct.pack_into(">I", both, 8 + 20 + 8, 4096)
    return bytes(both)


def thin_images() -> dict[str, bytes]:
    """Return the thin images, including the hostile ones."""
    plain = dylib()
    return {
        "unsigned": plain,
        "linker-signed": machobytes.dylib("x86_64", room=64, signed=True),
        "signed-twice-hashed": signed(plain),
        "signed-hardened": signed(dylib(minos="11.0"), flags=0x10000, entitlements=ENTITLEMENTS),
        "signed-info-plist": signed(with_section(b"__info_plist", INFO)),
        "arm64": signed(arm(dylib(minos="11.0"))),
        "executable": signed(kind(with_opcodes(), 2)),
        "object": kind(plain, 1),
        "symbols": with_symbols(),
        "bind-opcodes": with_opcodes(),
        "fixups-1": with_fixups(1),
        "fixups-2": with_fixups(2),
        "fixups-3": with_fixups(3),
        "cstrings": with_section(b"__cstring", b"/Users/me/a.c\0-I/home/b\0"),
        "no-commands": plain[:16] + bytes(8) + plain[24:],
        "looping-trie": looping_trie(),
        "truncated": plain[:700],
    }


def fat_files() -> dict[str, bytes]:
    """Return the universal files, including the hostile ones."""
    intel, apple = signed(dylib()), signed(arm(dylib(minos="11.0")))
    return {
        "fat": fat(intel, apple),
        "fat-wide": fat(intel, apple, wide=True),
        "fat-of-one": fat(apple),
        "fat-overlapping": overlapping_fat(),
        "fat-truncated": fat(intel, apple)[:-100],
        "java-class": struct.pack(">2I", 0xCAFEBABE, 0x34) + bytes(24),
    }
