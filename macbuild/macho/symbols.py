"""Read the exports, imports and definitions of an image, without an object per symbol where there can be very many.

Sources: `<mach-o/loader.h>` (export trie, bind opcodes), `<mach-o/fixup-chains.h>` (imports of chained fixups),
`<mach-o/nlist.h>` (symbol table).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from macbuild.errors import MachOError
from macbuild.macho.constants import LC
from macbuild.macho.image import Image

__all__ = [
    "FLAT_LOOKUP",
    "MAIN_EXECUTABLE",
    "SELF",
    "WEAK_LOOKUP",
    "Exports",
    "Import",
    "Symbol",
    "defined_names",
    "export_trie",
    "read_exports",
    "read_imports",
    "read_symbols",
    "read_trie",
]

SELF = 0
MAIN_EXECUTABLE = -1
FLAT_LOOKUP = -2
WEAK_LOOKUP = -3

MAX_NAME_BYTES = 1 << 27  # Names of all nodes of a trie together; those of LibTorch, the largest known, take 2^24.
_MAX_SPELLINGS = 8  # How often a name may occur in a string table: once for the symbol, sometimes also for debuggers.

_NLIST = struct.Struct("<IBBHQ")
_STAB, _TYPE, _EXTERNAL = 0xE0, 0x0E, 0x01
_UNDEFINED = 0
_WEAK_REF, _WEAK_DEF = 0x40, 0x80
_KIND_MASK, _KIND_THREAD_LOCAL = 0x03, 0x01
_FLAG_WEAK, _FLAG_REEXPORT = 0x04, 0x08
_SET_ORDINAL, _SET_ORDINAL_ULEB, _SET_SPECIAL, _SET_SYMBOL, _THREADED = 0x10, 0x20, 0x30, 0x40, 0xD0
_BINDS = frozenset({0x90, 0xA0, 0xB0, 0xC0})
_OPERANDS = {0x60: 1, 0x70: 1, 0x80: 1, 0xA0: 1, 0xC0: 2}


@dataclass(frozen=True, slots=True)
class Exports:
    """The exports of an image. `weak` and `thread_local` are subsets of `names`.

    `reexports` maps a name to the ordinal of the library that has it and its name there.
    """

    names: frozenset[bytes] = frozenset()
    weak: frozenset[bytes] = frozenset()
    thread_local: frozenset[bytes] = frozenset()
    reexports: Mapping[bytes, tuple[int, bytes]] = field(default_factory=dict)


class Import(NamedTuple):
    """A symbol that an image takes from a library.

    `ordinal` counts the dependencies from 1; 0 and less are `SELF`, `MAIN_EXECUTABLE`, `FLAT_LOOKUP`, `WEAK_LOOKUP`.
    `weak` means that it may be missing.
    """

    name: bytes
    ordinal: int
    weak: bool


class Symbol(NamedTuple):
    """An entry of the symbol table, the fields of `nlist_64`."""

    name: bytes
    type: int
    section: int
    desc: int
    value: int

    @property
    def undefined(self) -> bool:
        """True for an undefined external symbol."""
        return self.type & (_STAB | _TYPE | _EXTERNAL) == _EXTERNAL and self.value == 0

    @property
    def exported(self) -> bool:
        """True for a symbol that is defined here and visible outside (not private external)."""
        return self.type & 0x11 == _EXTERNAL and not self.type & _STAB and self.type & _TYPE != _UNDEFINED


def read_exports(image: Image) -> Exports:
    """Return the exports of an image, from its trie, or from the symbol table if it has none.

    Raises
    ------
    MachOError
        If the trie is cut off, loops, or grows out of all proportion.
    """
    trie = export_trie(image)
    if trie is None:
        symbols = [symbol for symbol in read_symbols(image) if symbol.exported]
        weak = frozenset(symbol.name for symbol in symbols if symbol.desc & _WEAK_DEF)
        return Exports(frozenset(symbol.name for symbol in symbols), weak)
    return read_trie(trie, image.where)


def export_trie(image: Image) -> bytes | None:
    """Return the bytes of the export trie, None if there is none; raise `MachOError` if they are outside the image."""
    found = image.linkedit_range(LC.DYLD_EXPORTS_TRIE)
    if found is None:
        found = _dyld_info(image, 8)
    return None if found is None else image.read(*found)


def read_trie(trie: bytes, where: str = "<memory>") -> Exports:
    """Read an export trie.

    Parameters
    ----------
    trie
        The whole trie; the root node starts at its first byte. No bytes are an empty trie.
    where
        How to name the image in an error.

    Raises
    ------
    MachOError
        If the trie is cut off, loops, or grows out of all proportion.
    """
    if not trie:
        return Exports()
    try:
        return _walk_trie(trie)
    except IndexError:
        raise MachOError("the export trie is cut off", where=where) from None
    except ValueError as error:
        raise MachOError(f"the export trie {error}", where=where) from None


def _walk_trie(trie: bytes) -> Exports:
    names: list[bytes] = []
    weak: list[bytes] = []
    thread_local: list[bytes] = []
    reexports: dict[bytes, tuple[int, bytes]] = {}
    seen = bytearray(len(trie))
    budget = MAX_NAME_BYTES
    stack = [(0, b"")]
    while stack:
        position, name = stack.pop()
        if seen[position]:
            raise ValueError("leads to the same node twice")
        seen[position] = 1
        size, position = _uleb(trie, position)
        children = position + size
        if size:
            flags, position = _uleb(trie, position)
            names.append(name)
            if flags & _FLAG_WEAK:
                weak.append(name)
            if flags & _KIND_MASK == _KIND_THREAD_LOCAL:
                thread_local.append(name)
            if flags & _FLAG_REEXPORT:
                ordinal, position = _uleb(trie, position)
                reexports[name] = (ordinal, trie[position : _terminator(trie, position)] or name)
        position = children + 1
        for _ in range(trie[children]):
            end = _terminator(trie, position)
            child, following = _uleb(trie, end + 1)
            budget -= len(name) + end - position
            if budget < 0:
                raise ValueError(f"has names of more than {MAX_NAME_BYTES} bytes together")
            stack.append((child, name + trie[position:end]))
            position = following
    return Exports(frozenset(names), frozenset(weak), frozenset(thread_local), reexports)


def _terminator(data: bytes, start: int) -> int:
    end = data.find(0, start)
    if end < 0:
        raise IndexError
    return end


def _uleb(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number of at most 64 bits, and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise ValueError("has a number of more than 64 bits")


def _skip_leb(data: bytes, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1


def _dyld_info(image: Image, field_index: int) -> tuple[int, int] | None:
    """Return offset and size, in bytes, that LC_DYLD_INFO gives at an index of its ten fields."""
    command = image.command(LC.DYLD_INFO, LC.DYLD_INFO_ONLY)
    if command is None:
        return None
    fields = image.fields(command, "<10I", command.name)
    return fields[field_index], fields[field_index + 1]


def read_imports(image: Image) -> tuple[Import, ...]:
    """Return the imports of an image, each once and sorted: from chained fixups, bind opcodes, or the symbol table.

    Raises
    ------
    MachOError
        If they are malformed.
    """
    found = image.linkedit_range(LC.DYLD_CHAINED_FIXUPS)
    if found is not None:
        return tuple(sorted(_chained_imports(image, image.read(*found))))
    if image.command(LC.DYLD_INFO, LC.DYLD_INFO_ONLY) is None:
        return tuple(sorted({_nlist_import(symbol) for symbol in read_symbols(image) if symbol.undefined}))
    imports: set[Import] = set()
    for index in (2, 6):
        opcodes = _dyld_info(image, index)
        if opcodes is not None:
            _bind_opcodes(image.read(*opcodes), imports, image.where)
    return tuple(sorted(imports))


def _nlist_import(symbol: Symbol) -> Import:
    ordinal = symbol.desc >> 8
    special = {0xFE: FLAT_LOOKUP, 0xFF: MAIN_EXECUTABLE}
    return Import(symbol.name, special.get(ordinal, ordinal), bool(symbol.desc & _WEAK_REF))


def _chained_imports(image: Image, data: bytes) -> set[Import]:
    if not data:
        return set()
    if len(data) < 28:
        raise MachOError("LC_DYLD_CHAINED_FIXUPS is cut off", where=image.where)
    version, _, imports_at, symbols_at, count, kind, compression = struct.unpack_from("<7I", data)
    layouts = {1: "<I", 2: "<Ii", 3: "<QQ"}
    if version or kind not in layouts or compression:
        raise MachOError(
            f"chained fixups of version {version}, import format {kind}, compression {compression} are not supported",
            where=image.where,
        )
    layout = struct.Struct(layouts[kind])
    end = imports_at + count * layout.size
    if end > len(data) or symbols_at > len(data):
        raise MachOError("the imports of the chained fixups end past their command", where=image.where)
    wide = kind == 3
    ordinal_bits, name_shift = (16, 32) if wide else (8, 9)
    imports = set()
    budget = MAX_NAME_BYTES
    for fields in layout.iter_unpack(data[imports_at:end]):
        ordinal = fields[0] & ((1 << ordinal_bits) - 1)
        if ordinal > (1 << ordinal_bits) - 16:
            ordinal -= 1 << ordinal_bits
        start = symbols_at + (fields[0] >> name_shift)
        stop = data.find(0, start)
        if stop < 0:
            raise MachOError("a name in the chained fixups has no end", where=image.where)
        budget -= stop - start
        if budget < 0:
            raise MachOError("the names in the chained fixups are too long", where=image.where)
        imports.add(Import(data[start:stop], ordinal, bool(fields[0] >> ordinal_bits & 1)))
    return imports


def _bind_opcodes(data: bytes, imports: set[Import], where: str) -> None:
    try:
        _collect_binds(data, imports)
    except IndexError:
        raise MachOError("the bind opcodes are cut off", where=where) from None
    except ValueError as error:
        raise MachOError(f"the bind opcode stream {error}", where=where) from None


def _collect_binds(data: bytes, imports: set[Import]) -> None:
    """Collect the imports of a bind or lazy bind stream; a lazy one has an end mark (0) after each symbol."""
    name, ordinal, weak = b"", SELF, False
    position, end = 0, len(data)
    while position < end:
        opcode, immediate = data[position] & 0xF0, data[position] & 0x0F
        position += 1
        if opcode == _SET_SYMBOL:
            stop = _terminator(data, position)
            name, weak, position = data[position:stop], bool(immediate & 1), stop + 1
        elif opcode == _SET_ORDINAL_ULEB:
            ordinal, position = _uleb(data, position)
        elif opcode == _SET_ORDINAL:
            ordinal = immediate
        elif opcode == _SET_SPECIAL:
            ordinal = immediate - 16 if immediate else SELF
        else:
            if opcode in _BINDS:
                imports.add(Import(name, ordinal, weak))
            for _ in range(_operands(opcode, immediate)):
                position = _skip_leb(data, position)


def _operands(opcode: int, immediate: int) -> int:
    """Return how many LEB128 numbers follow an opcode that sets neither symbol nor library."""
    if opcode > _THREADED:
        raise ValueError(f"has the unknown opcode {opcode:#x}")
    if opcode == _THREADED:
        return 1 if immediate == 0 else 0
    return _OPERANDS.get(opcode, 0)


def _symbol_table(image: Image) -> tuple[int, int, int, int] | None:
    """Return the offsets and sizes, in bytes, of the entries and of the strings of LC_SYMTAB."""
    command = image.command(LC.SYMTAB)
    if command is None:
        return None
    entries_at, count, strings_at, strings_size = image.fields(command, "<4I", "LC_SYMTAB")
    if entries_at + count * _NLIST.size > image.size or strings_at + strings_size > image.size:
        raise MachOError("LC_SYMTAB ends past the end of the image", where=image.where)
    return entries_at, count * _NLIST.size, strings_at, strings_size


def read_symbols(image: Image) -> Iterator[Symbol]:
    """Yield the entries of the symbol table in file order, debugging entries included.

    Raises
    ------
    MachOError
        If the table or a name is outside the image.
    """
    table = _symbol_table(image)
    if table is None:
        return
    entries_at, entries_size, strings_at, strings_size = table
    strings = image.read(strings_at, strings_size)
    budget = MAX_NAME_BYTES
    for name_at, kind, section, desc, value in _NLIST.iter_unpack(image.read(entries_at, entries_size)):
        end = strings.find(0, name_at)
        if end < 0:
            raise MachOError(f"a symbol has its name at byte {name_at} of {strings_size}", where=image.where)
        budget -= end - name_at
        if budget < 0:
            raise MachOError("the names in the symbol table are too long", where=image.where)
        yield Symbol(strings[name_at:end], kind, section, desc, value)


def defined_names(image: Image, names: Iterable[bytes]) -> frozenset[bytes]:
    """Return those of the names that the symbol table defines, also as local or private symbols.

    The bytes of the strings are searched first, so that a table of a million symbols costs milliseconds.

    Raises
    ------
    MachOError
        If the table is outside the image.
    """
    table = _symbol_table(image)
    if table is None:
        return frozenset()
    entries_at, entries_size, strings_at, strings_size = table
    first = image.offset + strings_at
    entries: bytes | None = None
    found = set()
    for name in names:
        at = first - 1
        for _ in range(_MAX_SPELLINGS):
            at = image.data.find(b"\0" + name + b"\0", at + 1, first + strings_size)
            if at < 0:
                break
            entries = entries or image.read(entries_at, entries_size)
            if _defines(entries, at + 1 - first):
                found.add(name)
                break
    return frozenset(found)


def _defines(entries: bytes, name_at: int) -> bool:
    needle = struct.pack("<I", name_at)
    at = entries.find(needle)
    while at >= 0:
        kind = entries[at + 4] if at % _NLIST.size == 0 else 0
        if kind & _TYPE and not kind & _STAB:
            return True
        at = entries.find(needle, at + 1)
    return False
