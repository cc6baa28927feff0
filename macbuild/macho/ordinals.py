"""Renumber two-level library ordinals after a dependency was removed: symbols, bind opcodes, chained fixups.

Sources: `<mach-o/nlist.h>`, `<mach-o/loader.h>` (bind opcodes), `<mach-o/fixup-chains.h>`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from macbuild.errors import MachOError
from macbuild.macho.constants import LC, HeaderFlag
from macbuild.macho.image import Image
from macbuild.macho.symbols import read_exports, read_imports

__all__ = ["Patch", "remap"]

Patch: TypeAlias = tuple[int, bytes]

_MAX_ORDINAL = 0xFD  # MAX_LIBRARY_ORDINAL: `n_desc` has no more, the numbers above it are special.
_NAMES_SHOWN = 3
_NAME_LIMIT = 1000
_STAB_AND_TYPE = 0xEE  # N_STAB | N_TYPE: all zero for an undefined symbol.
_SYMBOL_CLASSES = bytes(value & _STAB_AND_TYPE for value in range(256))

_DONE, _ORDINAL, _ORDINAL_ULEB, _SYMBOL, _THREADED = 0x00, 0x10, 0x20, 0x40, 0xD0
# Numbers that follow the other opcodes: type, addend, segment, advance, and the four ways to bind.
_OPERANDS = {0x30: 0, 0x50: 0, 0x60: 1, 0x70: 1, 0x80: 1, 0x90: 0, 0xA0: 1, 0xB0: 0, 0xC0: 2}

_IMPORT_SIZES = {1: 4, 2: 8, 3: 16}  # DYLD_CHAINED_IMPORT, DYLD_CHAINED_IMPORT_ADDEND, DYLD_CHAINED_IMPORT_ADDEND64


def remap(image: Image, ordinals: Sequence[int]) -> list[Patch]:
    """Return the patches, by offset from the start of the image, that give each dependency its new ordinal.

    Parameters
    ----------
    image
        The image as it is.
    ordinals
        New ordinal, counted from 1, of each dependency in load order; 0 for one that is removed.

    Raises
    ------
    MachOError
        If something still binds to a removed dependency, a re-export would need another number, or the link-edit data
        are malformed or of a form that macbuild cannot renumber.
    """
    if len(ordinals) > _MAX_ORDINAL:
        raise MachOError(f"cannot remove one of {len(ordinals)} dependencies, 253 is the limit", where=image.where)
    return _Remapper(image, ordinals).run()


class _Remapper:
    """One pass over everything in an image that carries an ordinal."""

    def __init__(self, image: Image, ordinals: Sequence[int]) -> None:
        self.image = image
        self.ordinals = ordinals

    def run(self) -> list[Patch]:
        self._refuse_imports()
        self._refuse_reexports()
        return [*self._symbols(), *self._dyld_info(), *self._chained_fixups()]

    def _error(self, message: str) -> MachOError:
        return MachOError(message, where=self.image.where)

    def _refuse_users(self, names: Sequence[str]) -> None:
        if names:
            listed = ", ".join(names[:_NAMES_SHOWN])
            more = " and more" if len(names) > _NAMES_SHOWN else ""
            raise self._error(f"symbols still bind to a dependency that is to be removed: {listed}{more}")

    def _refuse_imports(self) -> None:
        imports = [item for item in read_imports(self.image) if item.ordinal > 0 and not self._new(item.ordinal)]
        self._refuse_users([item.name.decode("utf-8", "replace") for item in imports[: _NAMES_SHOWN + 1]])

    def _refuse_reexports(self) -> None:
        for name, (ordinal, _) in read_exports(self.image).reexports.items():
            if ordinal and self._new(ordinal) != ordinal:
                shown = name.decode("utf-8", "replace")
                raise self._error(f"re-exports {shown} by the number of a dependency, which would have to change")

    def _new(self, ordinal: int) -> int:
        if not 1 <= ordinal <= len(self.ordinals):
            raise self._error(f"a library ordinal is {ordinal}, there are {len(self.ordinals)} dependencies")
        return self.ordinals[ordinal - 1]

    def _read(self, offset: int, size: int) -> bytes:
        if size and offset < self.image.commands_end:
            raise self._error("link-edit data overlap the load commands")
        return self.image.read(offset, size)

    def _difference(self, offset: int, old: bytes, new: bytes) -> Iterator[Patch]:
        if old != new:
            changed = [at for at, (before, after) in enumerate(zip(old, new, strict=True)) if before != after]
            yield offset + changed[0], new[changed[0] : changed[-1] + 1]

    def _symbols(self) -> Iterator[Patch]:
        command = self.image.command(LC.SYMTAB)
        if command is None or not self.image.flags & HeaderFlag.TWOLEVEL:
            return
        offset, count, names_at, _ = self.image.fields(command, "<4I", "LC_SYMTAB")
        old = self._read(offset, 16 * count)
        new = bytearray(old)
        users: list[str] = []
        classes = old[4::16].translate(_SYMBOL_CLASSES)
        at = 16 * classes.find(0)
        while at >= 0 and len(users) <= _NAMES_SHOWN:
            if 1 <= old[at + 7] <= _MAX_ORDINAL:
                new[at + 7] = self._new(old[at + 7])
                if not new[at + 7]:
                    users.append(self._name(names_at + int.from_bytes(old[at : at + 4], "little")))
            at = 16 * classes.find(0, at // 16 + 1)
        self._refuse_users(users)
        yield from self._difference(offset, old, bytes(new))

    def _name(self, at: int) -> str:
        raw = self.image.read(at, max(0, min(_NAME_LIMIT, self.image.size - at)))
        return raw.split(b"\0", 1)[0].decode("utf-8", "replace")

    def _dyld_info(self) -> Iterator[Patch]:
        command = self.image.command(LC.DYLD_INFO, LC.DYLD_INFO_ONLY)
        if command is None:
            return
        fields = self.image.fields(command, "<10I", command.name)
        for index, lazy in ((2, False), (4, False), (6, True)):
            offset, size = fields[index : index + 2]
            old = self._read(offset, size)
            yield from self._difference(offset, old, self._opcodes(old, lazy=lazy))

    def _opcodes(self, old: bytes, *, lazy: bool) -> bytes:
        """Renumber a bind stream; in a lazy one an end mark follows each symbol."""
        new = bytearray(old)
        at = 0
        while at < len(old):
            start, opcode, value = at, old[at] & 0xF0, old[at] & 0x0F
            at += 1
            if opcode == _DONE and not lazy:
                break
            if opcode == _ORDINAL_ULEB:
                value, at = self._uleb(old, at)
            if opcode in {_ORDINAL, _ORDINAL_ULEB}:
                ordinal = self._new(value) if value else 0
                new[start:at] = _ordinal_opcode(opcode, ordinal or value, at - start)
            elif opcode == _SYMBOL:
                at = old.find(b"\0", at) + 1
                if not at:
                    raise self._error("a name in the bind opcodes does not end")
            elif opcode != _DONE:
                at = self._after_operands(old, at, opcode, value)
        return bytes(new)

    def _after_operands(self, data: bytes, at: int, opcode: int, value: int) -> int:
        # BIND_SUBOPCODE_THREADED_SET_BIND_ORDINAL_TABLE_SIZE_ULEB is 0, BIND_SUBOPCODE_THREADED_APPLY is 1.
        count = {0: 1, 1: 0}.get(value) if opcode == _THREADED else _OPERANDS.get(opcode)
        if count is None:
            raise self._error(f"the bind opcode {opcode | value:#x} is unknown")
        for _ in range(count):
            _, at = self._uleb(data, at)
        return at

    def _uleb(self, data: bytes, at: int) -> tuple[int, int]:
        value = 0
        for index, byte in enumerate(data[at : at + 10]):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, at + index + 1
        raise self._error("a number in the bind opcodes does not end")

    def _chained_fixups(self) -> Iterator[Patch]:
        found = self.image.linkedit_range(LC.DYLD_CHAINED_FIXUPS)
        if found is None or not found[1]:
            return
        header = self._read(found[0], max(found[1], 28))[:28]
        version, _, imports_at, _, count, form, compression = struct.unpack("<7I", header)
        if version or compression or form not in _IMPORT_SIZES:
            raise self._error(
                f"cannot renumber chained fixups of version {version}, format {form}, packing {compression}"
            )
        size = _IMPORT_SIZES[form]
        if imports_at + count * size > found[1]:
            raise self._error("the imports of the chained fixups end past their end")
        old = self._read(found[0] + imports_at, count * size)
        new = bytearray(old)
        width = 2 if form == 3 else 1
        largest = (1 << 8 * width) - 16  # Numbers above it are negative: main executable, flat and weak lookup.
        for at in range(0, len(old), size):
            ordinal = int.from_bytes(old[at : at + width], "little")
            if 1 <= ordinal <= largest:
                new[at : at + width] = self._new(ordinal).to_bytes(width, "little")
        yield from self._difference(found[0] + imports_at, old, bytes(new))


def _ordinal_opcode(opcode: int, ordinal: int, size: int) -> bytes:
    """Write a set-ordinal opcode in `size` bytes; a ULEB128 may be padded, dyld reads it all the same."""
    if size == 1:
        return bytes([opcode | ordinal])
    digits = [ordinal >> 7 * index & 0x7F | 0x80 for index in range(size - 1)]
    digits[-1] &= 0x7F
    return bytes([opcode, *digits])
