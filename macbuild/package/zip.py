"""Write a zip archive whose bytes depend on its members alone, and read one back.

Headers are written here, by sections 4.3.7 to 4.3.16 of PKWARE's APPNOTE, because the output of Python's `zipfile`
differs between its versions, and Python's own zlib differs between builds. `macbuild.package.gzip` explains why
zlib-ng gives the same bytes everywhere. Reading back is left to `zipfile`, which shares no code with this.
"""

from __future__ import annotations

import datetime as dt
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from zlib_ng import zlib_ng

from macbuild.errors import ArchiveError, IntegrityError
from macbuild.files import atomic_path, os_errors
from macbuild.package.gzip import LEVEL, RAW

__all__ = ["ZipMember", "read_zip", "write_zip"]

# Signature, version needed, flags, method, time, date, CRC, packed size, size, lengths of name and extra field.
_LOCAL = struct.Struct("<4s 5H 3I 2H")
# Signature, version made by, the same again, lengths of name, extra field and comment, disk, attributes, offset.
_CENTRAL = struct.Struct("<4s 6H 3I 5H 2I")
# Signature, two disk numbers, entries on this disk and in all, size and offset of the directory, length of a comment.
_END = struct.Struct("<4s 4H 2I H")
_NEEDED = 20
_MADE_BY = 3 << 8 | _NEEDED  # Unix: the attributes hold the mode.
_UTF8 = 1 << 11
_STORED, _DEFLATED = 0, 8
_MAX_ENTRIES, _MAX_SIZE, _MAX_NAME = 0xFFFE, 0xFFFFFFFE, 0xFFFF
_FIRST_YEAR = 1980


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file of an archive: its path with slashes, its bytes, and its mode, 0o644 or 0o755."""

    name: str
    data: bytes
    mode: int = 0o644


def write_zip(output: Path, members: Sequence[ZipMember], *, epoch: int, jobs: int) -> None:
    """Write members in the order given, deflated where that makes them smaller; the file appears whole or not at all.

    Parameters
    ----------
    output
        The file to write.
    members
        What goes in.
    epoch
        The time of all members, in seconds since 1970; one before 1980 becomes the first that a zip archive can have.
    jobs
        Threads that compress. The result does not depend on it.

    Raises
    ------
    ArchiveError
        There are more members or bytes than fit without the zip64 extension, or a name is longer than 65535 bytes.
    FileError, NoSpaceError
        The output cannot be written.
    """
    time = _dos_time(epoch)
    directory = []
    offset = 0
    if len(members) > _MAX_ENTRIES or max((len(member.data) for member in members), default=0) > _MAX_SIZE:
        raise ArchiveError("holds more than fits into a zip archive", where=output)
    with atomic_path(output) as partial, partial.open("wb") as file, ThreadPoolExecutor(jobs) as pool:
        for member, packed in zip(members, pool.map(_deflate, members), strict=True):
            name = member.name.encode()
            if len(name) > _MAX_NAME or offset + len(packed) > _MAX_SIZE:
                raise ArchiveError("holds more than fits into a zip archive", where=output)
            method = _DEFLATED if len(packed) < len(member.data) else _STORED
            common = (_NEEDED, 0 if name.isascii() else _UTF8, method, *time, zlib_ng.crc32(member.data))
            sizes = (len(packed), len(member.data), len(name))
            attributes = (stat.S_IFREG | member.mode) << 16
            directory += [_CENTRAL.pack(b"PK\1\2", _MADE_BY, *common, *sizes, 0, 0, 0, 0, attributes, offset), name]
            offset += file.write(_LOCAL.pack(b"PK\3\4", *common, *sizes, 0) + name + packed)
        listed = b"".join(directory)
        if offset + len(listed) > _MAX_SIZE:
            raise ArchiveError("holds more than fits into a zip archive", where=output)
        count = len(members)
        file.write(listed + _END.pack(b"PK\5\6", 0, 0, count, count, len(listed), offset, 0))


def _deflate(member: ZipMember) -> bytes:
    """Return the deflate data of a member, or its bytes if those are not more."""
    packer = zlib_ng.compressobj(LEVEL, zlib_ng.DEFLATED, RAW)
    packed = packer.compress(member.data) + packer.flush()
    return packed if len(packed) < len(member.data) else member.data


def _dos_time(epoch: int) -> tuple[int, int]:
    """Return time and date as MS-DOS has them: two seconds a step, years from 1980."""
    when = dt.datetime.fromtimestamp(epoch, tz=dt.timezone.utc)
    if when.year < _FIRST_YEAR:
        when = dt.datetime(_FIRST_YEAR, 1, 1, tzinfo=dt.timezone.utc)
    return (
        when.hour << 11 | when.minute << 5 | when.second // 2,
        (when.year - _FIRST_YEAR) << 9 | when.month << 5 | when.day,
    )


def read_zip(path: Path) -> Iterator[ZipMember]:
    """Read a zip archive member by member, with every CRC checked; folders are left out.

    Raises
    ------
    IntegrityError
        It is damaged, or holds a member that is not a plain file, or is listed twice.
    FileError
        It cannot be read.
    """
    seen: set[str] = set()
    with os_errors(path):
        file = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if info.is_dir():
                    continue
                mode = info.external_attr >> 16
                if info.filename in seen:
                    raise IntegrityError("is listed twice", where=f"{path}: {info.filename}")
                if not stat.S_ISREG(mode):
                    raise IntegrityError("is not a plain file", where=f"{path}: {info.filename}")
                seen.add(info.filename)
                yield ZipMember(info.filename, archive.read(info), stat.S_IMODE(mode))
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, RuntimeError) as error:
        raise IntegrityError(f"is not a complete zip archive: {error}", where=path) from error
