"""Zip archives (and wheels), read strictly: the two directories of the format must agree.

The format is PKWARE's APPNOTE.TXT 6.3.10: section 4.3.7 local headers, 4.3.12 central directory, 4.3.14 to 4.3.16 its
end, 4.5.3 the 64-bit extension. The standard library's reader accepts overlapping entries, bytes after the end and
local headers that differ, and it inflates one entry at a time.
"""

from __future__ import annotations

import calendar
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from zlib_ng import zlib_ng

from macbuild.errors import ArchiveError
from macbuild.source.archive.members import Budget, InflateError, Limits, Member, MemberTree

__all__ = ["ZipEntry", "ZipReader", "is_zip"]

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _SIZES_FOLLOW, _STRONG, _UTF8, _MASKED = 0x1, 0x8, 0x40, 0x800, 0x2000
_UNIX, _DARWIN = 3, 19
_READ = 1 << 17
_PIECE = 1 << 20
_MAX_TARGET = 4096


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """A member and where its bytes are."""

    member: Member
    raw_name: bytes
    offset: int
    packed: int
    crc: int
    flags: int
    method: int


def is_zip(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a zip archive."""
    return head[:4] in {b"PK\x03\x04", b"PK\x05\x06"}


class ZipReader:
    """The entries of a zip archive and their bytes; reading is safe from several threads.

    Parameters
    ----------
    archive
        For messages.
    file
        Descriptor of the open archive.
    limits
        How much the archive may contain.

    Raises
    ------
    ArchiveError
        The directory is damaged or wrong, or has encrypted or overlapping entries, or unknown compression.
    """

    def __init__(self, archive: Path, file: int, limits: Limits) -> None:
        self._archive = archive
        self._file = file
        self._size = os.fstat(file).st_size
        self._limits = limits
        self._tree = MemberTree(archive, limits)

    def entries(self, takes: Callable[[Member], bool]) -> tuple[MemberTree, list[ZipEntry]]:
        """Return the tree and the entries that `takes` accepts, after all checks that need no unpacking."""
        start, size, count = self._directory()
        data = self._read(start, size)
        budget = Budget(self._archive, self._limits)
        entries: list[ZipEntry] = []
        spans: list[tuple[int, int]] = []
        at = 0
        for _ in range(count):
            budget.entry()
            entry, length = self._entry(data, at)
            at += length
            spans.append((entry.offset, entry.offset + _LOCAL.size + len(entry.raw_name) + entry.packed))
            budget.spend(entry.member.size)
            name = entry.member.name
            if not name and entry.member.kind != "folder":
                raise self._error("the top folder is not a folder")
            if name and takes(entry.member):
                self._tree.add(entry.member)
                entries.append(entry)
        if at != size:
            raise self._error("the directory has bytes that belong to no entry")
        self._check_spans(spans, start)
        self._tree.check_links()
        return self._tree, entries

    def read(self, entry: ZipEntry) -> Iterator[bytes]:
        """Yield the unpacked bytes of an entry in pieces of at most 1 MiB, checked for length and CRC at the end."""
        pieces = self._packed(entry)
        if entry.method == _DEFLATED:
            pieces = self._inflate(entry, pieces)
        crc = done = 0
        for piece in pieces:
            done += len(piece)
            if done > entry.member.size:
                raise self._tree.error(entry.member.name, "unpacks to more than the size that it claims")
            crc = zlib_ng.crc32(piece, crc)
            yield piece
        if done != entry.member.size:
            raise self._tree.error(entry.member.name, f"unpacks to {done} bytes, but claims {entry.member.size}")
        if crc != entry.crc:
            raise self._tree.error(entry.member.name, f"CRC-32 is {crc:08x}, but {entry.crc:08x} is claimed")

    def _directory(self) -> tuple[int, int, int]:
        tail = self._read(max(0, self._size - 0xFFFF - _END.size), min(self._size, 0xFFFF + _END.size))
        at = len(tail) - _END.size
        while at >= 0 and not (
            tail.startswith(b"PK\x05\x06", at) and at + _END.size + _END.unpack_from(tail, at)[7] == len(tail)
        ):
            at = tail.rfind(b"PK\x05\x06", 0, at + 3)
        if at < 0:
            raise self._error("it has no end record at its end: truncated, or with other bytes after it")
        _, disk, start_disk, here, count, size, start, _ = _END.unpack_from(tail, at)
        end = self._size - len(tail) + at
        if 0xFFFF in {disk, start_disk, here, count} or 0xFFFFFFFF in {size, start}:
            disk, start_disk, here, count, size, start, end = self._directory64(end)
        if disk or start_disk or here != count:
            raise self._error("it is one part of several")
        if start + size != end:
            raise self._error("its directory is not where the end record says")
        if count * _CENTRAL.size > size or count > self._limits.files:
            raise self._error(f"it claims {count} entries, which is more than its directory or the limit holds")
        return start, size, count

    def _directory64(self, end: int) -> tuple[int, int, int, int, int, int, int]:
        locator = end - _LOCATOR64.size
        magic, _, at, _ = _LOCATOR64.unpack(self._read(locator, _LOCATOR64.size))
        if magic != b"PK\x06\x07" or at + _END64.size != locator:
            raise self._error("its 64-bit end record is missing or not where its locator says")
        magic, _, _, _, disk, start_disk, here, count, size, start = _END64.unpack(self._read(at, _END64.size))
        if magic != b"PK\x06\x06":
            raise self._error("its 64-bit end record is damaged")
        return disk, start_disk, here, count, size, start, at

    def _entry(self, data: bytes, at: int) -> tuple[ZipEntry, int]:
        if at + _CENTRAL.size > len(data):
            raise self._error("its directory is truncated")
        magic, made_by, _, flags, method, clock, day, crc, packed, size, *rest = _CENTRAL.unpack_from(data, at)
        name_size, extra_size, note_size, disk, _, external, offset = rest
        names = at + _CENTRAL.size
        length: int = _CENTRAL.size + name_size + extra_size + note_size
        if magic != b"PK\x01\x02" or at + length > len(data):
            raise self._error("its directory is damaged")
        raw = data[names : names + name_size]
        text = self._text(raw, flags)
        name = self._tree.clean(text)
        if 0xFFFFFFFF in {packed, size, offset}:
            extra = data[names + name_size : names + name_size + extra_size]
            size, packed, offset = self._wide(name, extra, size, packed, offset)
        self._check_supported(name, flags, method)
        if disk or (method == _STORED and packed != size):
            raise self._tree.error(name, "impossible sizes")
        mode = external >> 16 if made_by >> 8 in {_UNIX, _DARWIN} else 0
        entry = ZipEntry(
            Member(name, "file", size, mode, _seconds(day, clock)), raw, offset, packed, crc, flags, method
        )
        kind = self._kind(name, mode, folder=text.endswith("/") or not name)
        if kind == "folder" and size:
            raise self._tree.error(name, "a folder with bytes")
        if kind != "file":
            target = self._target(entry) if kind == "symlink" else ""
            entry = replace(entry, member=replace(entry.member, kind=kind, size=0, target=target))
        return entry, length

    def _text(self, raw: bytes, flags: int) -> str:
        try:
            return raw.decode("utf-8" if flags & _UTF8 else "cp437")
        except UnicodeDecodeError:
            raise self._error(f"entry {raw[:200]!r}: the name is not UTF-8") from None

    def _check_supported(self, name: str, flags: int, method: int) -> None:
        if flags & (_ENCRYPTED | _STRONG | _MASKED):
            raise self._tree.error(name, "it is encrypted")
        if method not in {_STORED, _DEFLATED}:
            raise self._tree.error(name, f"compression method {method} is not supported")

    def _wide(self, name: str, extra: bytes, *values: int) -> list[int]:
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, at)
            if kind == 1:
                wanted = values.count(0xFFFFFFFF)
                if length < 8 * wanted or at + 4 + length > len(extra):
                    break
                wide = iter(struct.unpack_from(f"<{wanted}Q", extra, at + 4))
                return [next(wide) if value == 0xFFFFFFFF else value for value in values]
            at += 4 + length
        raise self._tree.error(name, "its 64-bit sizes are missing")

    def _kind(self, name: str, mode: int, *, folder: bool) -> Literal["file", "folder", "symlink"]:
        form = stat.S_IFMT(mode)
        if folder and form in {0, stat.S_IFDIR}:
            return "folder"
        if not folder and form in {0, stat.S_IFREG}:
            return "file"
        if not folder and form == stat.S_IFLNK:
            return "symlink"
        raise self._tree.error(name, "it is a device, or its name and its mode contradict each other")

    def _target(self, entry: ZipEntry) -> str:
        if entry.member.size > _MAX_TARGET:
            raise self._tree.error(entry.member.name, "symbolic link with a target that is too long")
        try:
            return b"".join(self.read(entry)).decode()
        except UnicodeDecodeError:
            raise self._tree.error(entry.member.name, "symbolic link with a target that is not UTF-8") from None

    def _check_spans(self, spans: list[tuple[int, int]], directory: int) -> None:
        last = 0
        for start, end in sorted(spans):
            if start < last or end > directory:
                raise self._error(f"the entry at byte {start} overlaps another one or the directory")
            last = end

    def _packed(self, entry: ZipEntry) -> Iterator[bytes]:
        head = self._read(entry.offset, _LOCAL.size + len(entry.raw_name))
        magic, _, flags, method, _, _, crc, packed, size, name_size, extra_size = _LOCAL.unpack_from(head)
        same = magic == b"PK\x03\x04" and head[_LOCAL.size :] == entry.raw_name and name_size == len(entry.raw_name)
        if same and not flags & _SIZES_FOLLOW:
            wide = 0xFFFFFFFF in {packed, size}
            same = crc == entry.crc and (wide or packed == entry.packed)
        if not same or flags != entry.flags or method != entry.method:
            raise self._tree.error(entry.member.name, "its header is damaged or differs from the directory")
        at = entry.offset + len(head) + extra_size
        left = entry.packed
        while left:
            part = self._read(at, min(left, _READ))
            at += len(part)
            left -= len(part)
            yield part

    def _inflate(self, entry: ZipEntry, pieces: Iterator[bytes]) -> Iterator[bytes]:
        stream = zlib_ng.decompressobj(-15)
        try:
            for packed in pieces:
                if stream.eof:
                    raise self._tree.error(entry.member.name, "its compressed data has bytes after the end")
                rest = packed
                while rest and not stream.eof:
                    yield stream.decompress(rest, _PIECE)
                    rest = stream.unconsumed_tail
            while not stream.eof and (piece := stream.decompress(b"", _PIECE)):
                yield piece
        except InflateError as error:
            raise self._tree.error(entry.member.name, f"its compressed data is damaged ({error})") from error
        if not stream.eof or stream.unused_data:
            raise self._tree.error(entry.member.name, "its compressed data is truncated or has bytes after the end")

    def _read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._file, size, offset) if 0 <= offset <= self._size else b""
        if len(data) != size:
            raise self._error(f"it ends before byte {offset + size}")
        return data

    def _error(self, reason: str) -> ArchiveError:
        return ArchiveError(f"not a valid zip archive: {reason}", where=self._archive)


def _seconds(day: int, clock: int) -> int:
    """Return the seconds since 1970 of a DOS date and time (APPNOTE.TXT 4.4.6), taken as UTC."""
    month = min(max(day >> 5 & 15, 1), 12)
    parts = (1980 + (day >> 9), month, day & 31 or 1, clock >> 11, clock >> 5 & 63, (clock & 31) * 2)
    return calendar.timegm(parts)
