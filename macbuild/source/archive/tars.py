"""Tar archives, plain or compressed, read strictly as a stream.

The format is POSIX.1-2008 pax interchange with ustar headers, and GNU long names (tar manual, appendix D). The standard
library's reader takes a damaged header in the middle for the end of the archive and reads extended headers of any size.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from zlib_ng import zlib_ng

from macbuild.errors import ArchiveError
from macbuild.source.archive.members import Budget, InflateError, Limits, Member, MemberTree

__all__ = ["TarReader", "is_tar", "stream_kind"]

_BLOCK = 512
_READ = 1 << 17
_PIECE = 1 << 20
_MAX_HEADER = 1 << 16
_XZ_MEMORY = 256 << 20
_MAGICS = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_KINDS: dict[bytes, Literal["file", "folder", "symlink", "hardlink"]] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hardlink",
    b"2": "symlink",
    b"5": "folder",
}
_QUARANTINE = "quarantine"  # stands for the attribute among the fields of an extended header
_DEVICES = {b"3": "a character device", b"4": "a block device", b"6": "a named pipe", b"S": "a sparse file"}


def stream_kind(head: bytes) -> str | None:
    """Return the compression (`gzip`, `xz`, `bzip2`, `zstd`) of a file that starts with these bytes."""
    return next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), None)


def is_tar(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a tar archive, by the checksum of its first header."""
    return len(head) >= _BLOCK and (_checksum_right(head[:_BLOCK]) or not any(head[:_BLOCK]))


class TarReader:
    """The entries of a tar archive in file order; the bytes of a file are read before the next entry.

    Parameters
    ----------
    archive
        For messages.
    file
        The archive, open at its start.
    limits
        How much the archive may contain.
    """

    def __init__(self, archive: Path, file: BinaryIO, limits: Limits) -> None:
        self._archive = archive
        self.budget = Budget(archive, limits)
        self.tree = MemberTree(archive, limits)
        self._pieces = self._unpacked(file)
        self._view = memoryview(b"")

    def entries(self) -> Iterator[tuple[Member, Iterator[memoryview]]]:
        """Yield each entry with its bytes; the caller adds the ones it wants to `tree`.

        Raises
        ------
        ArchiveError
            The archive is damaged, truncated, or has an entry that is not a file, folder or link.
        """
        extended: dict[str, str] = {}
        while any(header := self._exactly(_BLOCK)):
            kind, size = self._header(header)
            if kind in {b"x", b"g", b"L", b"K"}:
                record = self._record(size)
                if kind == b"x":
                    extended.update(self._pax(record))
                elif kind == b"g":
                    self._check_global(self._pax(record))
                else:
                    extended["path" if kind == b"L" else "linkpath"] = self._text(record.rstrip(b"\0"))
                continue
            member = self._member(header, kind, size, extended)
            extended = {}
            self.budget.entry()
            data = self._take(member.size)
            yield member, data
            for _ in data:
                pass
            self._exactly(-member.size % _BLOCK)
        if extended:
            raise self._error("it ends after an extended header")
        self._check_rest()

    def _check_rest(self) -> None:
        """Read to the end, so that the checksums of the compression are verified and no data hides there."""
        while True:
            if self._view.tobytes().strip(b"\0"):
                raise self._error("it has other bytes after its end")
            self._view = memoryview(next(self._pieces, b""))
            if not self._view:
                return

    def _header(self, header: bytes) -> tuple[bytes, int]:
        if not _checksum_right(header):
            raise self._error("the checksum of a header is wrong")
        return header[156:157], self._number(header[124:136], "size")

    def _member(self, header: bytes, flag: bytes, size: int, extended: dict[str, str]) -> Member:
        raw = header[:100].split(b"\0", 1)[0]
        if header[257:263] == b"ustar\0" and header[345] and "path" not in extended:
            raw = header[345:500].split(b"\0", 1)[0] + b"/" + raw
        text = extended["path"] if "path" in extended else self._text(raw)
        name = self.tree.clean(text)
        if flag in _DEVICES or "GNU.sparse" in extended:
            raise self.tree.error(name, f"it is {_DEVICES.get(flag, 'a sparse file')}, which is not supported")
        if flag not in _KINDS:
            raise self.tree.error(name, f"its type {flag!r} is not supported")
        kind = _KINDS[flag]
        if kind == "file" and text.endswith("/"):
            kind = "folder"
        if not name and kind != "folder":
            raise self.tree.error(text, "the top folder is not a folder")
        if "size" in extended:
            size = self._decimal(extended["size"], "size")
        if kind != "file" and size:
            raise self.tree.error(name, f"a {kind} with bytes")
        target = ""
        if kind in {"symlink", "hardlink"}:
            target = extended["linkpath"] if "linkpath" in extended else self._text(header[157:257].split(b"\0", 1)[0])
        mtime = self._number(header[136:148], "time")
        if "mtime" in extended:
            mtime = self._decimal(extended["mtime"], "time")
        mode = self._number(header[100:108], "mode")
        return Member(name, kind, size, mode, mtime, target, quarantined=_QUARANTINE in extended)

    def _number(self, field: bytes, what: str) -> int:
        if field[0] == 0x80:
            return int.from_bytes(field[1:], "big")
        if field[0] == 0xFF and what == "time":
            return 0
        digits = field.strip(b" \0")
        if any(digit not in b"01234567" for digit in digits):
            raise self._error(f"the {what} in a header is not a number")
        return int(digits or b"0", 8)

    def _decimal(self, text: str, what: str) -> int:
        whole = text.partition(".")[0] if what == "time" else text
        if what == "time" and whole.startswith("-"):
            return 0
        if not (whole.isascii() and whole.isdigit() and len(whole) < 20):
            raise self._error(f"the {what} in an extended header is not a number")
        return int(whole)

    def _record(self, size: int) -> bytes:
        if size > _MAX_HEADER:
            raise self._error("an extended header is too long")
        self.budget.entry()
        record = self._exactly(size)
        self._exactly(-size % _BLOCK)
        return record

    def _pax(self, record: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        while record:
            length, space, _ = record.partition(b" ")
            count = int(length) if length.isdigit() and len(length) < 8 else 0
            key, equals, value = record[len(length) + 1 : count - 1].partition(b"=")
            if not space or not equals or count > len(record) or record[count - 1 : count] != b"\n":
                raise self._error("an extended header is damaged")
            if key.startswith(b"GNU.sparse"):
                found["GNU.sparse"] = ""
            elif key in {b"path", b"linkpath", b"size", b"mtime"}:
                found[key.decode()] = self._text(value)
            elif key.endswith(b".xattr.com.apple.quarantine"):  # libarchive and star have their own prefixes
                found[_QUARANTINE] = ""
            record = record[count:]
        return found

    def _check_global(self, found: dict[str, str]) -> None:
        if found.keys() - {"mtime", _QUARANTINE}:
            raise self._error("a global extended header sets names or sizes")

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._error(f"entry {raw[:200]!r}: the name is not UTF-8") from None

    def _exactly(self, size: int) -> bytes:
        if size <= len(self._view):
            data = self._view[:size]
            self._view = self._view[size:]
            return bytes(data)
        return b"".join(self._take(size))

    def _take(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self._view:
                self._view = memoryview(next(self._pieces, b""))
                if not self._view:
                    raise self._error("it is truncated")
            part = self._view[:size]
            self._view = self._view[size:]
            size -= len(part)
            yield part

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        head = file.read(_BLOCK)
        file.seek(0)
        kind = stream_kind(head)
        if kind == "zstd":
            raise self._error("zstd compression is not supported")
        pieces = iter(lambda: file.read(_READ), b"")
        if kind is not None:
            pieces = self._decompressed(kind, pieces)
        for piece in pieces:
            self.budget.spend(len(piece))
            yield piece

    def _decompressed(self, kind: str, packed: Iterator[bytes]) -> Iterator[bytes]:
        kinds: dict[str, Callable[[], _Stream]] = {"gzip": _Gzip, "xz": _xz, "bzip2": bz2.BZ2Decompressor}
        new = kinds[kind]
        stream = new()
        data = b""
        try:
            while True:
                if not data and (stream.eof or stream.needs_input):
                    data = next(packed, b"")
                    if not data:
                        break
                if stream.eof:
                    data = data.lstrip(b"\0")
                    stream = new() if data else stream
                    continue
                piece = stream.decompress(data, _PIECE)
                data = stream.unused_data
                if piece:
                    yield piece
        except (ValueError, EOFError, OSError, lzma.LZMAError, InflateError) as error:
            raise self._error(f"its {kind} data is damaged, or has other bytes after it ({error})") from error
        if not stream.eof:
            raise self._error("it is truncated")

    def _error(self, reason: str) -> ArchiveError:
        return ArchiveError(f"not a valid tar archive: {reason}", where=self._archive)


class _Stream(Protocol):
    """The interface that the decompressors of `bz2` and `lzma` share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """A decompressor of one gzip member with the same interface."""

    def __init__(self) -> None:
        self._stream = zlib_ng.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


def _xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _checksum_right(header: bytes) -> bool:
    digits = header[148:156].strip(b" \0")
    if not digits.isdigit():
        return False
    body = header[:148] + b" " * 8 + header[156:512]
    claimed = int(digits, 8) if not set(digits) & set(b"89") else -1
    unsigned = sum(body)
    return claimed in {unsigned, unsigned - 256 * sum(byte > 127 for byte in body)}
