"""Remove names from the exports of a linked dylib, as an exported symbols list would have done at the link.

zig's linker silently ignores `-exported_symbols_list`, so the linked file is corrected. Every part of the link-edit
data keeps its place and size, padded with zeros: Apple's install_name_tool and strip refuse a file with gaps in it.

Sources: `<mach-o/loader.h>` (export trie, rebase and bind opcodes, LC_DYSYMTAB), `<mach-o/nlist.h>`.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

from macbuild.errors import MachOError
from macbuild.macho.constants import LC, FileType, HeaderFlag
from macbuild.macho.image import Image, LoadCommand
from macbuild.macho.private import PrivateFile, open_private
from macbuild.macho.rewrite import SlicePlan
from macbuild.macho.symbols import FLAT_LOOKUP, SELF, WEAK_LOOKUP, Import, read_exports, read_imports, read_symbols
from macbuild.macho.weakbinds import drop_weak_binds, read_uleb, write_uleb

__all__ = ["build_trie", "restrict_exports", "restrict_open"]

_Patch: TypeAlias = tuple[int, bytes]

_ENTRY = 16
_NLIST = struct.Struct("<IBBHQ")
_EXTERNAL, _PRIVATE_EXTERNAL = 0x01, 0x10
_WEAK_DEF = 0x80
_INDIRECT_SPECIAL = 0xC0000000  # INDIRECT_SYMBOL_LOCAL and INDIRECT_SYMBOL_ABS: no index follows.
_NAMES_SHOWN = 3


def restrict_exports(path: Path, keep: Sequence[str]) -> list[str]:
    """Make every exported symbol that no glob matches private, in place.

    The file must be private: it was never run. It is untouched if this is refused, but undefined if it cannot be
    written or signed again. A valid ad hoc signature is valid afterwards, any other one is replaced by an ad hoc one,
    and a file that was not signed stays so. Weak definitions that become private are no longer shared with other
    images.

    Parameters
    ----------
    path
        A dylib or bundle, thin or universal.
    keep
        Globs on names with their leading underscore.

    Returns
    -------
    list[str]
        The removed names, sorted; the file was not written if there are none.

    Raises
    ------
    MachOError
        If the file is malformed, is neither a dylib nor a bundle, or needs one of the names at load time in a way that
        cannot be undone.
    SignatureError
        If it cannot be signed again.
    FileError, NoSpaceError
        If it cannot be written.
    """
    with open_private(path) as private:
        return restrict_open(private, keep)


def restrict_open(private: PrivateFile, keep: Sequence[str]) -> list[str]:
    """Make exported symbols of an open private file private, as `restrict_exports` does."""
    pattern = re.compile("|".join(translate(glob) for glob in keep).encode("utf-8", "surrogateescape"))
    kept = pattern.match if keep else lambda _: None
    found = [restriction for image in private.macho.images if (restriction := _restrict(image, kept)).removed]
    private.patch([restriction.plan for restriction in found])
    images = {image.offset: image for image in private.macho.images}
    for restriction in found:
        # Read back the changes: no other name is gone, and no removed one is left.
        image = images[restriction.plan.offset]
        if _offered(image) != restriction.left:
            raise MachOError("link-edit data overlap its exports or symbols", where=image.where)
    private.commit()
    names = frozenset[bytes]().union(*(restriction.removed for restriction in found))
    return [name.decode("utf-8", "surrogateescape") for name in sorted(names)]


class _Restriction(NamedTuple):
    """The change of an image, the names that it removes and those that are left."""

    plan: SlicePlan
    removed: frozenset[bytes]
    left: frozenset[bytes]


def _restrict(image: Image, kept: Callable[[bytes], object]) -> _Restriction:
    if image.filetype not in {FileType.DYLIB, FileType.BUNDLE}:
        raise MachOError(f"a {image.kind} has no exports to restrict", where=image.where)
    weak = read_exports(image).weak
    offered = _offered(image)
    removed = frozenset(name for name in offered if not kept(name))
    patches: list[_Patch] = []
    if removed:
        _refuse_users(image, removed)
        dropped = drop_weak_binds(image, removed)
        moved = _move(image, removed)
        tables = [*_trie_patches(image, removed), *dropped.patches, *_symbol_patches(image, moved)]
        flags = image.flags
        if weak <= removed:
            flags &= ~int(HeaderFlag.WEAK_DEFINES)
        if dropped.emptied:
            flags &= ~int(HeaderFlag.BINDS_TO_WEAK)
        patches = [(24, struct.pack("<I", flags)), *_command_patches(image, len(moved.gone)), *tables]
        _refuse_overlaps(image, patches)
    plan = SlicePlan(image.where, image.arch, image.offset, image.size, image.size, tuple(patches))
    return _Restriction(plan, removed, offered - removed)


def _offered(image: Image) -> frozenset[bytes]:
    """Return the names that an image exports by its trie or by its symbol table; linkers write the same into both."""
    return read_exports(image).names | {symbol.name for symbol in read_symbols(image) if symbol.exported}


def _refuse_users(image: Image, removed: Collection[bytes]) -> None:
    """Refuse names that dyld looks for in this image or in all images, and would not find any more."""
    if image.command(LC.DYLD_CHAINED_FIXUPS) is None and image.command(LC.DYLD_INFO, LC.DYLD_INFO_ONLY) is None:
        return
    users = [found for found in read_imports(image) if found.name in removed and _needs_export(image, found)]
    if users:
        listed = ", ".join(found.name.decode("utf-8", "backslashreplace") for found in users[:_NAMES_SHOWN])
        more = f" and {len(users) - _NAMES_SHOWN} more" if len(users) > _NAMES_SHOWN else ""
        raise MachOError(
            f"binds to its own exports by name, so they cannot be made private: {listed}{more}",
            where=image.where,
            hint="compile with -fvisibility=hidden -fvisibility-inlines-hidden, so that they are private at the link",
        )


def _needs_export(image: Image, found: Import) -> bool:
    own = image.id.name if image.id is not None else None
    if found.ordinal in {SELF, FLAT_LOOKUP, WEAK_LOOKUP}:
        return True
    return 0 < found.ordinal <= len(image.dylibs) and image.dylibs[found.ordinal - 1].name == own


def _refuse_overlaps(image: Image, patches: Sequence[_Patch]) -> None:
    signature = image.signature_range
    if signature and any(at + len(data) > signature[0] for at, data in patches):
        raise MachOError("link-edit data are in the signature or after it", where=image.where)
    ranges = sorted((at, at + len(data)) for at, data in patches)
    if any(first[1] > second[0] for first, second in pairwise(ranges)):
        raise MachOError("link-edit data overlap each other", where=image.where)


def _table(image: Image, offset: int, size: int) -> bytes:
    """Read link-edit data that will be written; the header and the load commands must not be among them."""
    if size and offset < image.commands_end:
        raise MachOError("link-edit data overlap the load commands", where=image.where)
    return image.read(offset, size)


# --- the export trie


def _trie_patches(image: Image, removed: Collection[bytes]) -> Iterator[_Patch]:
    found = image.linkedit_range(LC.DYLD_EXPORTS_TRIE)
    if found is None:
        command = image.command(LC.DYLD_INFO, LC.DYLD_INFO_ONLY)
        if command is None:
            return
        fields = image.fields(command, "<10I", command.name)
        found = fields[8], fields[9]
    offset, size = found
    old = _table(image, offset, size)
    if not old:
        return
    terminals = {name: data for name, data in _terminals(old) if name not in removed}
    new = build_trie(terminals)
    if len(new) > size:
        raise MachOError(f"the new export trie takes {len(new)} bytes, and there are {size}", where=image.where)
    yield offset, new.ljust(size, b"\0")


def _terminals(trie: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each name of a trie that was read before without an error, with its flags, address and the like."""
    stack = [(0, b"")]
    while stack:
        at, name = stack.pop()
        size, at = read_uleb(trie, at)
        if size:
            yield name, trie[at : at + size]
        at += size
        count = trie[at]
        at += 1
        for _ in range(count):
            end = trie.index(0, at)
            child, following = read_uleb(trie, end + 1)
            stack.append((child, name + trie[at:end]))
            at = following


@dataclass
class _Node:
    """A node of a trie: flags and address of its name, and the edges to longer names."""

    payload: bytes = b""
    edges: list[tuple[bytes, _Node]] = field(default_factory=list)
    offset: int = 0

    def encode(self) -> bytes:
        parts = [write_uleb(len(self.payload)), self.payload, bytes([len(self.edges)])]
        for label, child in self.edges:
            parts += [label, b"\0", write_uleb(child.offset)]
        return b"".join(parts)


def build_trie(terminals: dict[bytes, bytes]) -> bytes:
    """Return the smallest export trie for names, each with its flags, address and the like.

    Names must not have zero bytes. Without names the root has no edges.
    """
    names = sorted(terminals)
    root = _Node()
    nodes: list[_Node] = []
    todo = [(root, 0, len(names), 0)]
    while todo:
        node, first, last, depth = todo.pop()
        nodes.append(node)
        if first < last and len(names[first]) == depth:
            node.payload = terminals[names[first]]
            first += 1
        while first < last:
            letter = names[first][depth]
            bound = names[first][:depth] + bytes([letter + 1]) if letter < 0xFF else b""
            stop = bisect_left(names, bound, first, last) if bound else last
            label = _common(names[first], names[stop - 1], depth)
            child = _Node()
            node.edges.append((label, child))
            todo.append((child, first, stop, depth + len(label)))
            first = stop
    while True:
        at, moved = 0, False
        for node in nodes:
            moved = moved or node.offset != at
            node.offset = at
            at += len(node.encode())
        if not moved:
            return b"".join(node.encode() for node in nodes)


def _common(one: bytes, other: bytes, start: int) -> bytes:
    """Return the bytes that two names have in common from a position on."""
    stop = start
    while stop < min(len(one), len(other)) and one[stop] == other[stop]:
        stop += 1
    return one[start:stop]


# --- the symbol table


class _Symbols(NamedTuple):
    """The new order of the symbols, by their old numbers, and the numbers of those that become private."""

    order: list[int]
    gone: list[int]


def _move(image: Image, removed: Collection[bytes]) -> _Symbols:
    """Move the symbols that become private after the local ones, where LC_DYSYMTAB requires them."""
    symbols = list(read_symbols(image))
    gone = [index for index, symbol in enumerate(symbols) if symbol.exported and symbol.name in removed]
    dynamic = image.command(LC.DYSYMTAB)
    if not gone or dynamic is None:
        return _Symbols(list(range(len(symbols))), gone)
    fields = image.fields(dynamic, "<18I", "LC_DYSYMTAB")
    first_local, locals_count, first, defined = fields[:4]
    end = first + defined
    if (locals_count and first_local + locals_count != first) or not first <= gone[0] <= gone[-1] < end <= len(symbols):
        raise MachOError("LC_DYSYMTAB has its symbols in an unusual order", where=image.where)
    if any(fields[index] for index in (7, 9, 11, 15)):
        # Modules, references and relocations by symbol number, which linkers wrote before LC_DYLD_INFO.
        raise MachOError("LC_DYSYMTAB has tables of older systems, which are not supported", where=image.where)
    moved = frozenset(gone)
    staying = [index for index in range(first, end) if index not in moved]
    return _Symbols([*range(first), *gone, *staying, *range(end, len(symbols))], gone)


def _command_patches(image: Image, gone: int) -> Iterator[_Patch]:
    dynamic = image.command(LC.DYSYMTAB)
    if dynamic is None or not gone:
        return
    first_local, locals_count, first, defined = image.fields(dynamic, "<18I", "LC_DYSYMTAB")[:4]
    start = first_local if locals_count else first
    yield dynamic.offset + 8, struct.pack("<4I", start, locals_count + gone, first + gone, defined - gone)


def _symbol_patches(image: Image, moved: _Symbols) -> Iterator[_Patch]:
    table = image.command(LC.SYMTAB)
    order, gone = moved
    if table is None or not gone:
        return
    offset, count, _, _ = image.fields(table, "<4I", "LC_SYMTAB")
    old = _table(image, offset, _ENTRY * count)
    rows = [old[at : at + _ENTRY] for at in range(0, len(old), _ENTRY)]
    for index in gone:
        name, kind, section, desc, value = _NLIST.unpack(rows[index])
        rows[index] = _NLIST.pack(name, kind & ~_EXTERNAL | _PRIVATE_EXTERNAL, section, desc & ~_WEAK_DEF, value)
    yield offset, b"".join(rows[index] for index in order)
    dynamic = image.command(LC.DYSYMTAB)
    if dynamic is not None:
        yield from _indirect_patches(image, dynamic, order)


def _indirect_patches(image: Image, dynamic: LoadCommand, order: list[int]) -> Iterator[_Patch]:
    offset, count = image.fields(dynamic, "<18I", "LC_DYSYMTAB")[12:14]
    numbers = {old: index for index, old in enumerate(order)}
    old = struct.unpack(f"<{count}I", _table(image, offset, 4 * count))
    if any(not value & _INDIRECT_SPECIAL and value not in numbers for value in old):
        raise MachOError("the indirect symbol table has the number of a symbol that does not exist", where=image.where)
    if count:
        new = [value if value & _INDIRECT_SPECIAL else numbers[value] for value in old]
        yield offset, struct.pack(f"<{count}I", *new)
