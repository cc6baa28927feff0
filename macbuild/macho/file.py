"""Read a Mach-O file from disk or memory: a thin image, or a fat header with several."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from macbuild.errors import MachOError
from macbuild.macho.constants import FAT_MAGIC, FAT_MAGIC_64
from macbuild.macho.image import HEADER_SIZE, Buffer, Image

__all__ = ["FatSlice", "MachOFile", "has_macho_magic", "is_macho", "open_macho", "parse_macho"]

MAX_SLICES = 16  # A Java class file has the same magic; its version number stands where the slice count is.


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
        """Whether there is a fat header."""
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
        If it is no 64-bit Mach-O file, or one of its images is malformed.
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
        raise MachOError("an architecture stands twice in the fat header", where=where)
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


@contextmanager
def open_macho(path: Path) -> Iterator[MachOFile]:
    """Map a Mach-O file read-only and parse it; the images are valid inside the `with` block only.

    Raises
    ------
    MachOError
        If it cannot be read or is no well-formed 64-bit Mach-O file.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < HEADER_SIZE:
                raise MachOError("too short for a Mach-O file", where=path)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield parse_macho(data, str(path))
    except OSError as error:
        raise MachOError(f"cannot be read: {error.strerror}", where=path) from error


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
    magic, count = struct.unpack(">2I", head)
    if magic in {FAT_MAGIC, FAT_MAGIC_64}:
        return 0 < int(count) <= MAX_SLICES
    return magic in {0xFEEDFACE, 0xFEEDFACF, 0xCEFAEDFE, 0xCFFAEDFE}
