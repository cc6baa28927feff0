"""Merge thin Mach-O files into a universal one, and extract a slice.

Source: `<mach-o/fat.h>`; order and alignment of the slices are those of Apple's lipo.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import MachOError
from macbuild.files import new_file
from macbuild.macho.constants import FAT_MAGIC, FAT_MAGIC_64, Cpu
from macbuild.macho.file import FatSlice, ParsedFile, read_macho
from macbuild.macho.image import Image

__all__ = ["merge", "thin", "write_slice", "write_universal"]

_ALIGN = {Cpu.X86_64: 12, Cpu.ARM64: 14}
_CHUNK = 1 << 24
_ENTRY_SIZES = {FAT_MAGIC: 20, FAT_MAGIC_64: 32}
_SUBTYPE_MASK = 0x00FFFFFF


def merge(inputs: Sequence[Path], output: Path) -> None:
    """Write one universal file from thin or universal ones; each slice is copied byte for byte.

    Parameters
    ----------
    inputs
        The files to merge. The first one gives the permissions.
    output
        The file to write; it may be one of the inputs.

    Raises
    ------
    MachOError
        If an input is malformed, two of them have a slice of the same architecture, or there is none.
    FileError, NoSpaceError
        If the output cannot be written.
    """
    write_universal([read_macho(path) for path in inputs], output)


def write_universal(files: Sequence[ParsedFile], output: Path) -> ParsedFile:
    """Write one universal file from parsed ones and return its facts, without parsing it; errors as for `merge`."""
    if not files:
        raise MachOError("there is nothing to merge", where=output)
    parts = _sorted_images(files)
    magic, offsets = _place([(image.cpu, image.size) for _, image in parts])
    fat = [
        FatSlice(image.cpu, image.cpusubtype, offset, image.size, _ALIGN[image.cpu])
        for (_, image), offset in zip(parts, offsets, strict=True)
    ]
    with new_file(output, files[0].path) as path, path.open("wb") as target:
        target.write(_header(magic, fat))
        for (file, image), offset in zip(parts, offsets, strict=True):
            target.seek(offset)
            with file.open() as macho:
                _copy(image.over(macho.data), target)
    images = [image.over(image.data, offset=entry.offset) for (_, image), entry in zip(parts, fat, strict=True)]
    return ParsedFile(output, fat[-1].offset + fat[-1].size, tuple(images), tuple(fat)).at(output)


def thin(path: Path, arch: str, output: Path) -> None:
    """Write one slice as a file of its own; a thin file of that architecture is copied.

    Parameters
    ----------
    path
        The thin or universal file to read.
    arch
        `arm64`, `arm64e` or `x86_64`.
    output
        The file to write.

    Raises
    ------
    MachOError
        If the file is malformed or has no such slice.
    FileError, NoSpaceError
        If the output cannot be written.
    """
    write_slice(read_macho(path), arch, output)


def write_slice(file: ParsedFile, arch: str, output: Path) -> ParsedFile:
    """Write one slice of a parsed file and return its facts, without parsing it; errors as for `thin`."""
    image = next((image for image in file.images if image.arch == arch), None)
    if image is None:
        raise MachOError(f"has no slice {arch}; it has {', '.join(file.archs)}", where=file.path)
    with file.open() as macho, new_file(output, file.path) as temporary, temporary.open("wb") as target:
        _copy(image.over(macho.data), target)
    return ParsedFile(output, image.size, (image.over(image.data, offset=0, where=str(output)),))


def _sorted_images(files: Sequence[ParsedFile]) -> list[tuple[ParsedFile, Image]]:
    """Return all slices as lipo orders them: by alignment, the arm64 family last, then by CPU subtype."""
    found: dict[str, tuple[ParsedFile, Image]] = {}
    for file in files:
        for image in file.images:
            if image.arch in found:
                where = found[image.arch][1].where
                raise MachOError(f"has the slice {image.arch}, which {where} has too", where=file.path)
            found[image.arch] = file, image
    return sorted(found.values(), key=lambda part: (_ALIGN[part[1].cpu], part[1].cpusubtype & _SUBTYPE_MASK))


def _place(sizes: Sequence[tuple[Cpu, int]]) -> tuple[int, list[int]]:
    """Return the magic number and the offset of each slice, for their CPUs and sizes in bytes."""
    offsets: list[int] = []
    for magic, entry_size in _ENTRY_SIZES.items():
        end = 8 + entry_size * len(sizes)
        offsets = []
        for cpu, size in sizes:
            offsets.append(end + -end % (1 << _ALIGN[cpu]))
            end = offsets[-1] + size
        if max(*offsets, *(size for _, size in sizes)) < 1 << 32:
            return magic, offsets
    return FAT_MAGIC_64, offsets


def _header(magic: int, fat: Sequence[FatSlice]) -> bytes:
    layout = ">2I2Q2I" if magic == FAT_MAGIC_64 else ">5I"
    header = struct.pack(">2I", magic, len(fat))
    for entry in fat:
        fields = (entry.cputype, entry.cpusubtype, entry.offset, entry.size, entry.align)
        header += struct.pack(layout, *fields, *([0] if magic == FAT_MAGIC_64 else []))
    return header


def _copy(image: Image, target: BinaryIO) -> None:
    target.writelines(image.read(start, min(_CHUNK, image.size - start)) for start in range(0, image.size, _CHUNK))
