"""Remove names from the weak bind opcodes of an image, so that dyld does not look for them.

Source: `<mach-o/loader.h>` (bind and rebase opcodes of LC_DYLD_INFO).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias, TypeVar

from macbuild.errors import MachOError
from macbuild.macho.constants import LC
from macbuild.macho.image import Image
from macbuild.macho.symbols import read_symbols

__all__ = ["Dropped", "drop_weak_binds", "read_uleb", "write_uleb"]

_Slot: TypeAlias = tuple[int, int]  # The number of a segment, and an offset in it in bytes.

_T = TypeVar("_T")

_POINTER = 1  # BIND_TYPE_POINTER and REBASE_TYPE_POINTER
_WORD = 1 << 64
_NONE = 0x00  # The end mark of both kinds of opcodes.
_SET_SYMBOL = 0x40
_SET_TYPE, _SET_ADDEND, _SET_SEGMENT, _ADD_ADDRESS = 0x50, 0x60, 0x70, 0x80
_BIND, _BIND_ADD, _BIND_ADD_SCALED, _BIND_TIMES = 0x90, 0xA0, 0xB0, 0xC0
_REBASE_TYPE, _REBASE_SEGMENT, _REBASE_ADD, _REBASE_ADD_SCALED = 0x10, 0x20, 0x30, 0x40
_REBASE_FEW, _REBASE_MANY, _REBASE_AND_ADD, _REBASE_TIMES = 0x50, 0x60, 0x70, 0x80
_WITH_NUMBER = frozenset({_REBASE_SEGMENT, _REBASE_ADD, _REBASE_MANY, _REBASE_AND_ADD, _REBASE_TIMES})


class Dropped(NamedTuple):
    """The new opcodes by their offset, padded to the size of the old ones; `emptied` if no symbol is left in them."""

    patches: tuple[tuple[int, bytes], ...] = ()
    emptied: bool = False


@dataclass(frozen=True)
class _State:
    """The target of the next bind opcode. `segment` is -1 as long as none was set."""

    type: int = 0
    addend: int = 0
    segment: int = -1
    offset: int = 0

    def advance(self, size: int) -> _State:
        return replace(self, offset=(self.offset + size) % _WORD)


@dataclass
class _Group:
    """The opcodes from a symbol to the next one, the states before and after them, and what they bind."""

    name: bytes
    before: _State
    start: int
    stop: int = 0
    after: _State = field(default_factory=_State)
    binds: list[_State] = field(default_factory=list)


def drop_weak_binds(image: Image, removed: Collection[bytes]) -> Dropped:
    """Return the weak bind opcodes of LC_DYLD_INFO without some names that the image itself defines.

    dyld writes the address of the one chosen definition to all slots listed there. Without an entry a slot keeps what
    its rebase entry makes of it: the address of the definition in this image. Each slot is checked to have such an
    entry and that address.

    Raises
    ------
    MachOError
        If a slot would not hold the right address, the opcodes are malformed, or the new ones need more room.
    """
    command = image.command(LC.DYLD_INFO, LC.DYLD_INFO_ONLY)
    if command is None:
        return Dropped()
    fields = image.fields(command, "<10I", command.name)
    offset, size = fields[4:6]
    if size and offset < image.commands_end:
        raise MachOError("link-edit data overlap the load commands", where=image.where)
    old = image.read(offset, size)
    groups = _checked(image, "weak bind", lambda: list(_WeakBindReader(old, image.size // 4).groups()))
    dropped = [group for group in groups if group.name in removed]
    if not dropped:
        return Dropped()
    _check_slots(image, dropped, image.read(*fields[:2]))
    new = _without(old, groups, removed)
    if len(new) > size:
        raise MachOError(f"the new weak bind opcodes take {len(new)} bytes, and there are {size}", where=image.where)
    return Dropped(((offset, new.ljust(size, b"\0")),), all(group.name in removed for group in groups[1:]))


class _WeakBindReader:
    """Reads weak bind opcodes; `budget` is how many slots there may be, since more would overlap each other."""

    def __init__(self, data: bytes, budget: int) -> None:
        self.data = data
        self.budget = budget
        self.at = 0
        self.state = _State()

    def groups(self) -> Iterator[_Group]:
        """Yield the opcodes before the first symbol, under an empty name, and those of each symbol."""
        group = _Group(b"", self.state, 0)
        while self.at < len(self.data) and self.data[self.at] & 0xF0 != _NONE:
            start = self.at
            opcode, value = self.data[start] & 0xF0, self.data[start] & 0x0F
            self.at += 1
            if opcode == _SET_SYMBOL:
                yield self._finished(group, start)
                end = self.data.index(0, self.at)
                group = _Group(self.data[self.at : end], self.state, start)
                self.at = end + 1
            elif opcode < _BIND:
                self.state = self._set(opcode, value)
            else:
                self._bind(group, opcode, value)
        yield self._finished(group, self.at)

    def _finished(self, group: _Group, stop: int) -> _Group:
        group.stop, group.after = stop, self.state
        return group

    def _number(self) -> int:
        number, self.at = read_uleb(self.data, self.at)
        return number

    def _set(self, opcode: int, value: int) -> _State:
        if opcode == _SET_TYPE:
            return replace(self.state, type=value)
        if opcode == _SET_ADDEND:
            start, number = self.at, self._number()
            bits = 7 * (self.at - start)
            return replace(self.state, addend=number - (1 << bits) if number >> (bits - 1) else number)
        if opcode == _SET_SEGMENT:
            return replace(self.state, segment=value, offset=self._number() % _WORD)
        if opcode == _ADD_ADDRESS:
            return self.state.advance(self._number())
        raise ValueError(f"the opcode {opcode | value:#x}, which does not belong there")

    def _bind(self, group: _Group, opcode: int, value: int) -> None:
        count, step = 1, 8
        if opcode == _BIND_ADD:
            step += self._number()
        elif opcode == _BIND_ADD_SCALED:
            step += 8 * value
        elif opcode == _BIND_TIMES:
            count = self._number()
            step += self._number()
        elif opcode != _BIND:
            raise ValueError(f"the unknown opcode {opcode | value:#x}")
        self.budget -= count
        if self.budget < 0:
            raise ValueError("more slots than the image has room for")
        for _ in range(count):
            group.binds.append(self.state)
            self.state = self.state.advance(step)


def _checked(image: Image, kind: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except IndexError:
        raise MachOError(f"the {kind} opcodes are cut off", where=image.where) from None
    except ValueError as error:
        raise MachOError(f"the {kind} opcodes have {error}", where=image.where) from None


def _without(old: bytes, groups: Sequence[_Group], removed: Collection[bytes]) -> bytes:
    out = bytearray()
    state = _State()
    for group in groups:
        if group.name not in removed:
            out += _transition(state, group.before) + old[group.start : group.stop]
            state = group.after
    return bytes(out)


def _transition(old: _State, new: _State) -> bytes:
    """Return the opcodes that lead from one state to another."""
    out = b""
    if old.type != new.type:
        out += bytes([_SET_TYPE | new.type])
    if old.addend != new.addend:
        out += bytes([_SET_ADDEND]) + _write_sleb(new.addend)
    if (old.segment, old.offset) != (new.segment, new.offset):
        direct = bytes([_SET_SEGMENT | new.segment & 0x0F]) + write_uleb(new.offset)
        onward = bytes([_ADD_ADDRESS]) + write_uleb((new.offset - old.offset) % _WORD)
        out += min(direct, onward, key=len) if old.segment == new.segment else direct
    return out


def _check_slots(image: Image, dropped: Sequence[_Group], rebases: bytes) -> None:
    values = {symbol.name: symbol.value for symbol in read_symbols(image) if symbol.exported}
    wanted = {(bind.segment, bind.offset) for group in dropped for bind in group.binds}
    rebased: set[_Slot] = set()
    if wanted:
        rebased = _checked(image, "rebase", lambda: wanted.intersection(_rebases(rebases, image.size // 4)))
    for group in dropped:
        for bind in group.binds:
            slot = bind.segment, bind.offset
            expected = (values.get(group.name, -1) + bind.addend) % _WORD
            if bind.type != _POINTER or slot not in rebased or _content(image, slot) != expected:
                shown = group.name.decode("utf-8", "backslashreplace")
                message = f"a weak binding of {shown} cannot be undone: its slot does not hold its address"
                raise MachOError(message, where=image.where)


def _content(image: Image, slot: _Slot) -> int:
    number, offset = slot
    if not 0 <= number < len(image.segments) or offset + 8 > image.segments[number].filesize:
        raise MachOError(
            f"a weak binding is at byte {offset} of segment {number}, which ends before", where=image.where
        )
    return int.from_bytes(image.read(image.segments[number].fileoff + offset, 8), "little")


def _rebases(data: bytes, budget: int) -> Iterator[_Slot]:
    """Yield the slots that dyld adds the slide to; in 64-bit images these are only pointers."""
    segment, offset, at = -1, 0, 0
    while at < len(data) and data[at] & 0xF0 != _NONE:
        opcode, value = data[at] & 0xF0, data[at] & 0x0F
        at += 1
        number, more = value, 0
        if opcode in _WITH_NUMBER:
            number, at = read_uleb(data, at)
        if opcode == _REBASE_TIMES:
            more, at = read_uleb(data, at)
        if opcode == _REBASE_SEGMENT:
            segment, offset = value, number
            continue
        count, step, move = _rebase(opcode, number, more)
        budget -= count
        if budget < 0:
            raise ValueError("more slots than the image has room for")
        for _ in range(count):
            yield segment, offset % _WORD
            offset += step
        offset += move


def _rebase(opcode: int, number: int, more: int) -> tuple[int, int, int]:
    """Return how many slots an opcode names, how far apart they are, and how far to move after them."""
    if opcode in {_REBASE_FEW, _REBASE_MANY}:
        return number, 8, 0
    if opcode == _REBASE_TIMES:
        return number, 8 + more, 0
    if opcode == _REBASE_AND_ADD:
        return 1, 8, number
    if opcode in {_REBASE_ADD, _REBASE_ADD_SCALED}:
        return 0, 0, number * (8 if opcode == _REBASE_ADD_SCALED else 1)
    if opcode == _REBASE_TYPE and number == _POINTER:
        return 0, 0, 0
    raise ValueError(f"the opcode {opcode:#x} with {number}, which does not belong there")


def read_uleb(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number of at most 70 bits, and the position after it.

    Raises `IndexError` if the data end before it, `ValueError` if it is longer.
    """
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | data[at] << shift, at + 1


def write_uleb(value: int) -> bytes:
    """Return an unsigned LEB128 number in as few bytes as it needs."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _write_sleb(value: int) -> bytes:
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value & 0x7F)
    return bytes(out)
