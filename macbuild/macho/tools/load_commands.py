"""Write load commands the way `otool -l` does.

Source: `<mach-o/loader.h>` for the fields; the labels and their columns are those that Apple's otool prints.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from macbuild.errors import MachOError
from macbuild.macho.constants import DYLIB_COMMANDS, LC, LINKEDIT_DATA_COMMANDS
from macbuild.macho.image import Image, LoadCommand

__all__ = ["packed_version", "render"]

Lines: TypeAlias = Iterator[tuple[str, str]]

# Name, column of the labels, format of the fields after cmd and cmdsize, labels.
_PLAIN: dict[int, tuple[int, str, str]] = {
    LC.SYMTAB: (8, "<4I", "symoff nsyms stroff strsize"),
    LC.DYSYMTAB: (
        15,
        "<18I",
        (
            "ilocalsym nlocalsym iextdefsym nextdefsym iundefsym nundefsym tocoff ntoc modtaboff nmodtab"
            " extrefsymoff nextrefsyms indirectsymoff nindirectsyms extreloff nextrel locreloff nlocrel"
        ),
    ),
    LC.DYLD_INFO: (
        15,
        "<10I",
        (
            "rebase_off rebase_size bind_off bind_size weak_bind_off weak_bind_size lazy_bind_off lazy_bind_size"
            " export_off export_size"
        ),
    ),
    LC.MAIN: (10, "<2Q", "entryoff stacksize"),
    0x21: (10, "<3I", "cryptoff cryptsize cryptid"),
    0x2C: (10, "<4I", "cryptoff cryptsize cryptid pad"),
}
_PLAIN[LC.DYLD_INFO_ONLY] = _PLAIN[LC.DYLD_INFO]
_PLAIN |= dict.fromkeys(LINKEDIT_DATA_COMMANDS, (9, "<2I", "dataoff datasize"))

# Commands whose only field is a string.
_STRINGS: dict[int, str] = {
    LC.RPATH: "path",
    0xE: "name",
    0xF: "name",
    0x27: "name",
    0x12: "umbrella",
    0x13: "umbrella",
    0x14: "client",
    0x15: "sub_library",
}

# Names of the commands that macbuild itself does not use.
_OTHER_NAMES: dict[int, str] = {
    0x3: "SYMSEG",
    0x4: "THREAD",
    0x5: "UNIXTHREAD",
    0x6: "LOADFVMLIB",
    0x7: "IDFVMLIB",
    0x8: "IDENT",
    0x9: "FVMFILE",
    0xA: "PREPAGE",
    0xE: "LOAD_DYLINKER",
    0xF: "ID_DYLINKER",
    0x10: "PREBOUND_DYLIB",
    0x11: "ROUTINES",
    0x12: "SUB_FRAMEWORK",
    0x13: "SUB_UMBRELLA",
    0x14: "SUB_CLIENT",
    0x15: "SUB_LIBRARY",
    0x16: "TWOLEVEL_HINTS",
    0x17: "PREBIND_CKSUM",
    0x1A: "ROUTINES_64",
    0x21: "ENCRYPTION_INFO",
    0x27: "DYLD_ENVIRONMENT",
    0x2C: "ENCRYPTION_INFO_64",
    0x2D: "LINKER_OPTION",
    0x2F: "VERSION_MIN_TVOS",
    0x30: "VERSION_MIN_WATCHOS",
    0x31: "NOTE",
    0x80000035: "FILESET_ENTRY",
}
_INDIRECT_SECTIONS = frozenset({0x6, 0x7, 0x8, 0x14})  # symbol pointers, stubs, thread local pointers
_STUBS_SECTION = 0x8


def packed_version(value: int, *, always_patch: bool = False) -> str:
    """Write a packed version as `X.Y`, with `.Z` if it is not 0 or always wanted."""
    text = f"{value >> 16}.{value >> 8 & 0xFF}"
    return f"{text}.{value & 0xFF}" if always_patch or value & 0xFF else text


def render(image: Image) -> Iterator[str]:
    """Yield the lines of `otool -l` for one image.

    Raises `MachOError` if a command is too short for its fields or a segment is outside the image.
    """
    segments = {segment.command.offset for segment in image.segments}
    for index, command in enumerate(image.commands):
        yield f"Load command {index}"
        if command.offset in segments:
            yield from _segment(command)
        elif command.cmd in DYLIB_COMMANDS:
            yield from _dylib(image, command)
        else:
            yield from _table(image, command)


def _head(command: LoadCommand, width: int) -> Iterator[str]:
    yield f"{'cmd':>{width}} {_name(command)}"
    yield f"{'cmdsize':>{width}} {command.size}"


def _name(command: LoadCommand) -> str:
    other = _OTHER_NAMES.get(command.cmd)
    if other is not None:
        return f"LC_{other}"
    return command.name if command.cmd in LC._value2member_map_ else f"?({command.cmd:#010x}) Unknown load command"


def _table(image: Image, command: LoadCommand) -> Iterator[str]:
    width, pairs = _fields(image, command)
    yield from _head(command, width)
    for label, value in pairs:
        yield f"{label:>{width}} {value}" if label else value


def _fields(image: Image, command: LoadCommand) -> tuple[int, Lines]:
    if command.cmd in _PLAIN:
        width, layout, labels = _PLAIN[command.cmd]
        values = image.fields(command, layout, _name(command))
        return width, zip(labels.split(), map(str, values), strict=True)
    if command.cmd in _STRINGS:
        return 13, _string(image, command)
    if command.cmd == LC.UUID:
        return 8, _uuid(image, command)
    special = _SPECIAL.get(command.cmd)
    return 9, _raw(command) if special is None else special(image, command)


def _string(image: Image, command: LoadCommand) -> Lines:
    (at,) = image.fields(command, "<I", _name(command))
    yield _STRINGS[command.cmd], f"{image.string(command, at, 12)} (offset {at})"


def _uuid(image: Image, command: LoadCommand) -> Lines:
    image.fields(command, "<4I", "LC_UUID")
    text = command.data[8:24].hex().upper()
    yield "uuid", "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _build_version(image: Image, command: LoadCommand) -> Lines:
    platform, minos, sdk, tools = image.fields(command, "<4I", "LC_BUILD_VERSION")
    if command.size < 24 + 8 * tools:
        raise MachOError(f"LC_BUILD_VERSION claims {tools} tools", where=image.where)
    yield "platform", str(platform)
    yield "minos", packed_version(minos)
    yield "sdk", packed_version(sdk) if sdk else "n/a"
    yield "ntools", str(tools)
    for index in range(tools):
        tool, version = struct.unpack_from("<2I", command.data, 24 + 8 * index)
        yield "tool", str(tool)
        yield "version", packed_version(version)


def _version_min(image: Image, command: LoadCommand) -> Lines:
    version, sdk = image.fields(command, "<2I", _name(command))
    yield "version", packed_version(version)
    yield "sdk", packed_version(sdk) if sdk else "n/a"


def _source_version(image: Image, command: LoadCommand) -> Lines:
    (value,) = image.fields(command, "<Q", "LC_SOURCE_VERSION")
    parts = [value >> 40, *(value >> shift & 0x3FF for shift in (30, 20, 10, 0))]
    while len(parts) > 2 and not parts[-1]:
        parts.pop()
    yield "version", ".".join(map(str, parts))


_SPECIAL: dict[int, Callable[[Image, LoadCommand], Lines]] = {
    LC.BUILD_VERSION: _build_version,
    LC.SOURCE_VERSION: _source_version,
    LC.VERSION_MIN_MACOSX: _version_min,
    LC.VERSION_MIN_IPHONEOS: _version_min,
    0x2F: _version_min,
    0x30: _version_min,
}


def _raw(command: LoadCommand) -> Lines:
    words = [f"{word:08x}" for (word,) in struct.iter_unpack("<I", command.data[8:])]
    for start in range(0, len(words), 4):
        yield "", " ".join(words[start : start + 4])


def _dylib(image: Image, command: LoadCommand) -> Iterator[str]:
    dylib = image.dylib(command)
    (at,) = struct.unpack_from("<I", command.data, 8)
    yield from _head(command, 13)
    yield f"{'name':>13} {dylib.name} (offset {at})"
    yield f"{'time stamp':>13} {dylib.timestamp} {time.asctime(time.gmtime(dylib.timestamp))}"
    yield f"{'current version':>21} {packed_version(dylib.current_version, always_patch=True)}"
    yield f"{'compatibility version':>21} {packed_version(dylib.compatibility_version, always_patch=True)}"


def _segment(command: LoadCommand) -> Iterator[str]:
    raw, vmaddr, vmsize, fileoff, filesize, maxprot, initprot, count, flags = struct.unpack_from(
        "<16s4Q4I", command.data, 8
    )
    yield from _head(command, 9)
    yield f"  segname {_fixed(raw)}"
    yield f"   vmaddr {vmaddr:#018x}"
    yield f"   vmsize {vmsize:#018x}"
    yield f"  fileoff {fileoff}"
    yield f" filesize {filesize}"
    yield f"  maxprot {maxprot:#010x}"
    yield f" initprot {initprot:#010x}"
    yield f"   nsects {count}"
    yield f"    flags {flags:#x}"
    for index in range(count):
        yield "Section"
        yield from _section(command.data[72 + 80 * index :])


def _section(data: bytes) -> Iterator[str]:
    section, segment, addr, size, offset, align, reloff, nreloc, flags, first, second = struct.unpack_from(
        "<16s16s2Q7I", data
    )
    kind = flags & 0xFF
    yield f"  sectname {_fixed(section)}"
    yield f"   segname {_fixed(segment)}"
    yield f"      addr {addr:#018x}"
    yield f"      size {size:#018x}"
    yield f"    offset {offset}"
    # The field may be hostile: 2 to a power above 31 is not an alignment and could be a number of any length.
    yield f"     align 2^{align} ({1 << align})" if align < 32 else f"     align 2^{align}"
    yield f"    reloff {reloff}"
    yield f"    nreloc {nreloc}"
    yield f"     flags {flags:#010x}"
    yield f" reserved1 {first}" + (" (index into indirect symbol table)" if kind in _INDIRECT_SECTIONS else "")
    yield f" reserved2 {second}" + (" (size of stubs)" if kind == _STUBS_SECTION else "")


def _fixed(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
