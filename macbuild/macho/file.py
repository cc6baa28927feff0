"""Read a Mach-O file from disk or memory: a thin image, or a fat header with several images."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import MachOError
from macbuild.macho.constants import FAT_MAGIC, FAT_MAGIC_64, FileType
from macbuild.macho.image import HEADER_SIZE, Buffer, Image

__all__ = [
    "FatSlice",
    "MachOFile",
    "ParsedFile",
    "has_macho_magic",
    "is_loadable",
    "is_macho",
    "open_macho",
    "parse_macho",
    "read_loadable",
    "read_macho",
]

MAX_SLICES = 16  # A Java class file has the same magic, and its version number where the slice count is.


@dataclass(frozen=True, slots=True)
class FatSlice:
    """An entry of a fat header: CPU, where the image lies in bytes, and its alignment as a power of two."""

    cputype: int
    cpusubtype: int
    offset: int
    size: int
    align: int


@dataclass(frozen=True)
class MachOFile:
    """A Mach-O file: its images, and the fat header if it has one."""

    where: str
    data: Buffer
    images: tuple[Image, ...]
    fat: tuple[FatSlice, ...]

    @property
    def is_fat(self) -> bool:
        """True if there is a fat header."""
        return bool(self.fat)

    @property
    def archs(self) -> tuple[str, ...]:
        """Architectures in file order."""
        return tuple(image.arch for image in self.images)


def parse_macho(data: Buffer, where: str = "<memory>") -> MachOFile:
    """Parse a thin or fat Mach-O file.

    Parameters
    ----------
    data
        The whole file; it is referred to, not copied, except for the load commands.
    where
        How to name the file in an error.

    Raises
    ------
    MachOError
        If it is not a 64-bit Mach-O file, or one of its images is malformed.
    """
    if len(data) < 8:
        raise MachOError("too short for a Mach-O file", where=where)
    if struct.unpack_from(">I", data)[0] not in {FAT_MAGIC, FAT_MAGIC_64}:
        return MachOFile(where, data, (Image(data, 0, len(data), where),), ())
    slices = tuple(_fat_slices(data, where))
    images = []
    for entry in slices:
        image = Image(data, entry.offset, entry.size, where)
        image.where = f"{where} ({image.arch})"
        if (image.cpu, image.cpusubtype) != (entry.cputype, entry.cpusubtype):
            raise MachOError("the fat header and the image name different CPUs", where=image.where)
        images.append(image)
    names = [image.arch for image in images]
    if len(set(names)) != len(names):
        raise MachOError("an architecture is listed twice in the fat header", where=where)
    return MachOFile(where, data, tuple(images), slices)


def _fat_slices(data: Buffer, where: str) -> Iterator[FatSlice]:
    magic, count = struct.unpack_from(">2I", data)
    layout = ">2I2QI4x" if magic == FAT_MAGIC_64 else ">5I"
    entry_size = struct.calcsize(layout)
    if not 0 < count <= MAX_SLICES:
        raise MachOError(f"a fat header with {count} slices (or a Java class file)", where=where)
    if 8 + count * entry_size > len(data):
        raise MachOError("the fat header is cut off", where=where)
    end = 8 + count * entry_size
    taken: list[tuple[int, int]] = [(0, end)]
    for index in range(count):
        entry = FatSlice(*struct.unpack_from(layout, data, 8 + index * entry_size))
        if entry.offset + entry.size > len(data):
            raise MachOError(f"slice {index} ends past the end of the file", where=where)
        if entry.align > 15 or entry.offset % (1 << entry.align):
            raise MachOError(f"slice {index} is not aligned to 2^{entry.align}", where=where)
        if any(entry.offset < stop and start < entry.offset + entry.size for start, stop in taken):
            raise MachOError(f"slice {index} overlaps another one", where=where)
        taken.append((entry.offset, entry.offset + entry.size))
        yield entry


_LOADABLE = frozenset({FileType.DYLIB, FileType.BUNDLE, FileType.EXECUTE})
_ARCHIVE_MAGIC = b"!<arch>\n"


@dataclass(frozen=True)
class ParsedFile:
    """A file whose headers were parsed, and which is closed again.

    The facts of its images that come from load commands can be read at any time; for other bytes, `open` it. Nothing is
    parsed a second time as long as the bytes stay the same.

    Parameters
    ----------
    path
        The file.
    size
        Its size in bytes.
    images, fat
        As in `MachOFile`.
    """

    path: Path
    size: int
    images: tuple[Image, ...]
    fat: tuple[FatSlice, ...] = ()

    @property
    def is_fat(self) -> bool:
        """True if there is a fat header."""
        return bool(self.fat)

    @property
    def archs(self) -> tuple[str, ...]:
        """Architectures in file order."""
        return tuple(image.arch for image in self.images)

    @property
    def loadable(self) -> bool:
        """True if the loader takes the file; object files are for linkers."""
        return all(image.filetype in _LOADABLE for image in self.images)

    def at(self, path: Path) -> ParsedFile:
        """Return the facts of a copy of the file."""
        label = "{} ({})" if self.is_fat else "{}"
        images = (image.over(image.data, where=label.format(path, image.arch)) for image in self.images)
        return replace(self, path=path, images=tuple(images))

    @contextmanager
    def open(self) -> Iterator[MachOFile]:
        """Map the file read-only; the images that it gives are valid inside the `with` block only.

        Raises
        ------
        MachOError
            If the file cannot be read or has another size now.
        """
        with _opened(self.path) as file, _mapped(file, self.path) as data:
            yield self.over(data)

    def over(self, data: Buffer) -> MachOFile:
        """Return the file in a buffer that holds its bytes."""
        if len(data) != self.size:
            raise MachOError(f"had {self.size} bytes and has {len(data)} now", where=self.path)
        return MachOFile(str(self.path), data, tuple(image.over(data) for image in self.images), self.fat)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error
    with file:
        yield file


@contextmanager
def _mapped(file: BinaryIO, path: Path) -> Iterator[mmap.mmap]:
    try:
        if os.fstat(file.fileno()).st_size < HEADER_SIZE:
            raise MachOError("too short for a Mach-O file", where=path)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise _unreadable(path, error) from error
    with data:
        yield data


def _unreadable(path: Path, error: OSError) -> MachOError:
    return MachOError(f"cannot be read: {error.strerror}", where=path)


@contextmanager
def open_macho(path: Path) -> Iterator[MachOFile]:
    """Map a Mach-O file read-only and parse it; the images are valid inside the `with` block only.

    Raises
    ------
    MachOError
        If it cannot be read or is not a well-formed 64-bit Mach-O file.
    """
    with _opened(path) as file, _mapped(file, path) as data:
        yield parse_macho(data, str(path))


def read_macho(path: Path) -> ParsedFile:
    """Parse the headers of a Mach-O file and close it.

    Raises
    ------
    MachOError
        If it cannot be read or is not a well-formed 64-bit Mach-O file.
    """
    with open_macho(path) as file:
        return ParsedFile(path, len(file.data), file.images, file.fat)


def read_loadable(path: Path) -> ParsedFile | None:
    """Parse the headers of a file that the loader takes, in one opening; return None for every other file.

    Object files and archives of them, also universal ones, are for linkers.

    Raises
    ------
    MachOError
        If the file starts as a Mach-O file and is not a well-formed one of 64 bits.
    """
    try:
        file = path.open("rb")
    except OSError:
        return None
    with file:
        try:
            head = file.read(20).ljust(20, b"\0")
        except OSError:
            return None
        if not has_macho_magic(head[:8]) or _is_universal_archive(file, head):
            return None
        with _mapped(file, path) as data:
            macho = parse_macho(data, str(path))
            parsed = ParsedFile(path, len(data), macho.images, macho.fat)
    return parsed if parsed.loadable else None


def is_loadable(path: Path) -> bool:
    """Tell whether a file is Mach-O that the loader takes; object files and archives of them are for linkers."""
    return read_loadable(path) is not None


def is_macho(path: Path) -> bool:
    """Tell from the first bytes whether a regular file is Mach-O, thin or fat, of any word size."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return has_macho_magic(head)


def has_macho_magic(head: bytes) -> bool:
    """Tell from its first 8 bytes whether a file is Mach-O, thin or fat, of any word size and byte order."""
    if len(head) < 8:
        return False
    magic, count = struct.unpack_from(">2I", head)
    if magic in {FAT_MAGIC, FAT_MAGIC_64}:
        return 0 < int(count) <= MAX_SLICES
    return magic in {0xFEEDFACE, 0xFEEDFACF, 0xCEFAEDFE, 0xCFFAEDFE}


def _is_universal_archive(file: BinaryIO, head: bytes) -> bool:
    magic, _, _, _, offset = struct.unpack(">5I", head)
    if magic != FAT_MAGIC:
        return False
    file.seek(offset)
    return file.read(8) == _ARCHIVE_MAGIC
