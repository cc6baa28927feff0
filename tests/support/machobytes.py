"""Write small, well-formed Mach-O dylibs for tests, with no code of macbuild."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

CPU = {"x86_64": (0x01000007, 3), "arm64": (0x0100000C, 0)}
PAGE = {"x86_64": 0x1000, "arm64": 0x4000}
SYSTEM = ("/usr/lib/libSystem.B.dylib",)


def version(text: str) -> int:
    """Pack X.Y.Z."""
    parts = [int(part) for part in text.split(".")] + [0, 0]
    return parts[0] << 16 | parts[1] << 8 | parts[2]


def _command(cmd: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<2I", cmd, 8 + len(body)) + body


def _dylib(cmd: int, name: str, current: str = "1.2.3", compatibility: str = "1.0.0") -> bytes:
    fields = struct.pack("<4I", 24, 2, version(current), version(compatibility))
    return _command(cmd, fields + name.encode() + b"\0")


def _segment(name: bytes, vmaddr: int, vmsize: int, fileoff: int, filesize: int, prot: int, sections: bytes) -> bytes:
    fields = struct.pack("<16s4Q2i2I", name, vmaddr, vmsize, fileoff, filesize, prot, prot, len(sections) // 80, 0)
    return _command(0x19, fields + sections)


def _trie(exports: Sequence[str]) -> bytes:
    """Write an export trie whose root has one edge per name; every symbol is at address 0x10."""
    if not exports:
        return b""
    size = 2 + sum(len(name) + 2 for name in exports)
    node = b"\x02\x00\x10\x00"
    out = bytearray([0, len(exports)])
    for index, name in enumerate(exports):
        child = size + index * len(node)
        assert child < 0x80, "this writer supports only one-byte offsets"
        out += name.encode() + b"\0" + bytes([child])
    return bytes(out) + node * len(exports)


def code_directory(content: bytes, identifier: str, text_size: int, flags: int = 0x20002) -> bytes:
    """Write the linker-signed signature (super blob with one SHA-256 code directory) of `content`."""
    name = identifier.encode() + b"\0"
    pages = [hashlib.sha256(content[at : at + 4096]).digest() for at in range(0, len(content), 4096)]
    hash_offset = 88 + len(name)
    directory = struct.pack(
        ">9I4B4I4Q",
        *(0xFADE0C02, hash_offset + 32 * len(pages), 0x20400, flags, hash_offset, 88, 0, len(pages), len(content)),
        *(32, 2, 0, 12, 0, 0, 0, 0, 0, 0, text_size, 0),
    )
    directory += name + b"".join(pages)
    blob = struct.pack(">5I", 0xFADE0CC0, 20 + len(directory), 1, 0, 20) + directory
    return blob + bytes(-len(blob) % 16)


def dylib(
    arch: str = "arm64",
    *,
    id: str = "@rpath/libx.dylib",
    dylibs: Sequence[str] = SYSTEM,
    rpaths: Sequence[str] = (),
    minos: str = "11.0",
    sdk: str = "14.0",
    room: int = 4096,
    signed: bool = False,
    text: bytes = b"\xc0\x03\x5f\xd6" * 16,
    exports: Sequence[str] = ("_f",),
) -> bytes:
    """Return a thin dylib with `room` free bytes after its load commands, plus 16 if it is unsigned."""
    page = PAGE[arch]
    trie = _trie(exports)
    linkedit = trie + bytes(-len(trie) % 8)
    others = [
        _dylib(0xD, id),
        _command(0x80000033, b"TRIE0000"),
        _command(0x2, struct.pack("<4I", 0, 0, 0, 0)),
        _command(0x1B, hashlib.sha256(id.encode()).digest()[:16]),
        _command(0x32, struct.pack("<4I", 1, version(minos), version(sdk), 0)),
        *(_dylib(0xC, name) for name in dylibs),
        *(_command(0x8000001C, struct.pack("<I", 12) + name.encode() + b"\0") for name in rpaths),
    ]
    others_size = sum(map(len, others))
    header_end = 32 + 152 + 72 + others_size + 16
    text_offset = header_end + room
    text_size = -(-(text_offset + len(text)) // page) * page
    linkedit_size = -(-len(linkedit) // 16) * 16 if signed else len(linkedit)
    section = struct.pack(
        "<16s16s2Q8I", b"__text", b"__TEXT", text_offset, len(text), text_offset, 2, 0, 0, 0x80000400, 0, 0, 0
    )
    others[1] = _command(0x80000033, struct.pack("<2I", text_size, len(trie)))
    others[2] = _command(0x2, struct.pack("<4I", text_size + len(linkedit), 0, text_size + len(linkedit), 0))
    code_limit = text_size + linkedit_size
    blob_size = len(code_directory(bytes(code_limit), id.rsplit("/", 1)[-1], text_size)) if signed else 0
    total = linkedit_size + blob_size
    commands = [
        _segment(b"__TEXT", 0, text_size, 0, text_size, 5, section),
        _segment(b"__LINKEDIT", text_size, -(-total // page) * page, text_size, total, 1, b""),
        *others,
    ]
    if signed:
        commands.append(_command(0x1D, struct.pack("<2I", code_limit, blob_size)))
    body = b"".join(commands)
    header = struct.pack("<8I", 0xFEEDFACF, *CPU[arch], 6, len(commands), len(body), 0x85, 0)
    content = (header + body).ljust(text_offset, b"\0") + text
    content = content.ljust(text_size, b"\0") + linkedit.ljust(linkedit_size, b"\0")
    if not signed:
        return content
    return content + code_directory(content, id.rsplit("/", 1)[-1], text_size)


def fat(*images: bytes, wide: bool = False) -> bytes:
    """Put thin images into a fat file, each aligned to 16 KiB; `wide` takes the 64-bit fat header."""
    layout = ">2I2Q2I" if wide else ">5I"
    offset = 0x4000
    header = struct.pack(">2I", 0xCAFEBABF if wide else 0xCAFEBABE, len(images))
    body = b""
    for image in images:
        cpu = struct.unpack_from("<2I", image, 4)
        fields = (*cpu, offset, len(image), 14)
        header += struct.pack(layout, *fields, *([0] if wide else []))
        padded = image.ljust(-(-len(image) // 0x4000) * 0x4000, b"\0")
        body += padded if image is not images[-1] else image
        offset += len(padded)
    return header.ljust(0x4000, b"\0") + body
