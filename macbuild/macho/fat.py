"""Merge thin Mach-O files into a universal one, and take a slice out again.

Source: `<mach-o/fat.h>`; order and alignment of the slices are those of Apple's lipo.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import MachOError
from macbuild.files import new_file
from macbuild.macho.constants import FAT_MAGIC, FAT_MAGIC_64, Cpu
from macbuild.macho.file import MachOFile, open_macho
from macbuild.macho.image import Image

__all__ = ["merge", "thin"]

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
        If an input is malformed, two have a slice of the same architecture, or there is no input.
    StoreError, NoSpaceError
        If the output cannot be written.
    """
    if not inputs:
        raise MachOError("there is nothing to merge", where=output)
    with ExitStack() as stack:
        files = [stack.enter_context(open_macho(path)) for path in inputs]
        images = _sorted_images(files)
        magic, offsets = _place([(image.cpu, image.size) for image in images])
        with new_file(output, inputs[0]) as path, path.open("wb") as file:
            file.write(_header(magic, images, offsets))
            for image, offset in zip(images, offsets, strict=True):
                file.seek(offset)
                _copy(image, file)


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
    StoreError, NoSpaceError
        If the output cannot be written.
    """
    with open_macho(path) as file:
        found = [image for image in file.images if image.arch == arch]
        if not found:
            raise MachOError(f"has no slice {arch}; there: {', '.join(file.archs)}", where=path)
        with new_file(output, path) as temporary, temporary.open("wb") as target:
            _copy(found[0], target)


def _sorted_images(files: Sequence[MachOFile]) -> list[Image]:
    """Return all slices as lipo orders them: by alignment, the arm64 family last, then by CPU subtype."""
    images: dict[str, Image] = {}
    for file in files:
        for image in file.images:
            if image.arch in images:
                raise MachOError(f"has the slice {image.arch}, as {images[image.arch].where} has", where=file.where)
            images[image.arch] = image
    return sorted(images.values(), key=lambda image: (_ALIGN[image.cpu], image.cpusubtype & _SUBTYPE_MASK))


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


def _header(magic: int, images: Sequence[Image], offsets: Sequence[int]) -> bytes:
    layout = ">2I2Q2I" if magic == FAT_MAGIC_64 else ">5I"
    header = struct.pack(">2I", magic, len(images))
    for image, offset in zip(images, offsets, strict=True):
        fields = (image.cpu, image.cpusubtype, offset, image.size, _ALIGN[image.cpu])
        header += struct.pack(layout, *fields, *([0] if magic == FAT_MAGIC_64 else []))
    return header


def _copy(image: Image, target: BinaryIO) -> None:
    target.writelines(image.read(start, min(_CHUNK, image.size - start)) for start in range(0, image.size, _CHUNK))
