"""Sign Mach-O files ad hoc: from nothing, again, or only the pages that an edit touched."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import MacbuildError, MachOError
from macbuild.files import copy_contents, copy_range, new_file, os_errors
from macbuild.macho.constants import FAT_MAGIC, FAT_MAGIC_64
from macbuild.macho.file import open_macho
from macbuild.macho.image import Image
from macbuild.macho.pages import hash_pages
from macbuild.macho.signplan import ImagePlan, SigningPlan, SignOptions, plan_image, plan_signing, round_up
from macbuild.macho.verify import check_layout

__all__ = [
    "SignOptions",
    "refresh",
    "sign_bytes",
    "sign_file",
    "sign_private",
    "sign_thin",
    "sign_universal",
]


def sign_private(path: Path, options: SignOptions | None = None) -> None:
    """Sign a file in place. The file must be private: it was never run. It is undefined if this fails.

    Raises
    ------
    HeaderRoomError
        If the load command of a first signature does not fit.
    MachOError, SignatureError
        If the file or its old signature is malformed; the file is not changed then.
    FileError
        If it cannot be written.
    """
    with open_macho(path) as macho:
        plan = plan_signing(macho, options or SignOptions(), path.name)
    _write_plan(path, plan)


def sign_file(path: Path, options: SignOptions | None = None, *, output: Path | None = None) -> None:
    """Sign a file into a new inode beside it, or into `output`; nothing changes on an error.

    A file that has been run must not be signed in place: the kernel remembers the old signature of its inode.
    Raises the same as `sign_private`.
    """
    target = path if output is None else output
    with open_macho(path) as macho:
        plan = plan_signing(macho, options or SignOptions(), target.name)
    with new_file(target, like=path) as private:
        copy_contents(path, private)
        _write_plan(private, plan)


def sign_bytes(data: bytes, name: str, options: SignOptions | None = None) -> bytes:
    """Sign a thin image in memory; an identifier may be derived from `name`, its file name."""
    image = Image(data, 0, len(data), name)
    plan = plan_image(image, options or SignOptions(), name, image)
    code = bytearray(image.read(0, plan.kept).ljust(plan.code_limit, b"\0"))
    code[: len(plan.header)] = plan.header
    return bytes(code) + plan.build(memoryview(code))


def refresh(image: Image, touched: Sequence[tuple[int, int]]) -> bool:
    """Hash the touched pages of an ad hoc signed image again and correct its signature in place.

    Parameters
    ----------
    image
        The image as it is after the edit, in a buffer that can be written.
    touched
        Ranges that were edited: start and stop in bytes from the start of the image.

    Returns
    -------
    bool
        False, with nothing changed, if this is not enough: there is no ad hoc signature, it does not fit the image any
        more, or the edit reached the signature or what a special slot seals. Sign the image again then.
    """
    try:
        signature = check_layout(image)
    except MacbuildError:
        return False
    limit = signature.main.code_limit
    if signature.cms or any(not 0 <= start <= stop <= limit for start, stop in touched):
        return False
    start_of_signature = image.offset + limit
    with memoryview(image.data) as whole, whole[image.offset : image.offset + limit] as code:
        for directory in signature.code_directories:
            hashes = start_of_signature + directory.blob.offset + directory.hash_offset
            size = directory.hash_type.size
            shift = directory.page_shift
            pages = {
                page
                for start, stop in touched
                if start < stop
                for page in range(start >> shift, ((stop - 1) >> shift) + 1)
            }
            for page in pages:
                digest = hash_pages(code[page << shift : (page + 1) << shift], 1 << shift, directory.hash_type)
                whole[hashes + page * size : hashes + (page + 1) * size] = digest
    return True


def _write_plan(path: Path, plan: SigningPlan) -> None:
    with os_errors(path):
        if plan.fat:
            sign_universal(path, plan)
        else:
            with path.open("r+b") as file:
                sign_thin(file, plan)


def sign_thin(file: BinaryIO, plan: SigningPlan) -> None:
    """Sign an open thin file in place; raises `OSError` if it cannot be written."""
    (thin,) = plan.slices
    file.truncate(thin.kept)
    file.truncate(thin.code_limit)
    _write(file, 0, thin)


def sign_universal(path: Path, plan: SigningPlan) -> None:
    """Sign a universal file into a new inode of the same name, since its slices may move."""
    with new_file(path, like=path) as output, path.open("rb") as source, output.open("r+b") as file:
        offsets = _lay_out(file, source, plan)
        for offset, part in zip(offsets, plan.slices, strict=True):
            _write(file, offset, part)


def _lay_out(file: BinaryIO, source: BinaryIO, plan: SigningPlan) -> list[int]:
    """Write the fat header and copy the kept part of each slice to its new place."""
    layout = ">2I2QI4x" if plan.wide else ">5I"
    position = 8 + len(plan.fat) * struct.calcsize(layout)
    header = struct.pack(">2I", FAT_MAGIC_64 if plan.wide else FAT_MAGIC, len(plan.fat))
    offsets = []
    for entry, part in zip(plan.fat, plan.slices, strict=True):
        position = round_up(position, 1 << entry.align)
        if not plan.wide and position + part.size > 0xFFFFFFFF:
            raise MachOError("more than 4 GiB need a 64-bit fat header", where=file.name)
        header += struct.pack(layout, entry.cputype, entry.cpusubtype, position, part.size, entry.align)
        offsets.append(position)
        position += part.size
    file.write(header)
    for entry, part, offset in zip(plan.fat, plan.slices, offsets, strict=True):
        file.seek(offset)
        copy_range(source, file, entry.offset, part.kept)
    file.truncate(position)
    return offsets


def _write(file: BinaryIO, offset: int, plan: ImagePlan) -> None:
    """Write the new header, hash the code and append the signature."""
    file.seek(offset)
    file.write(plan.header)
    file.flush()
    stop = offset + plan.code_limit
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        data.madvise(mmap.MADV_SEQUENTIAL)
        with memoryview(data) as whole, whole[offset:stop] as code:
            signature = plan.build(code)
    file.seek(stop)
    file.write(signature)
