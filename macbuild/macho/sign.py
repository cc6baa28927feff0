"""Sign Mach-O files ad hoc: from nothing, again, or only the pages that an edit touched."""

from __future__ import annotations

import hashlib
import mmap
import re
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import HeaderRoomError, MacbuildError, MachOError, SignatureError, UsageError
from macbuild.files import copy_range, new_file, os_errors
from macbuild.macho.codesign import (
    ADHOC_CMS,
    EMPTY_REQUIREMENTS,
    CodeDirectoryFields,
    CodeFlag,
    ExecFlag,
    HashType,
    Magic,
    Signature,
    Slot,
    build_blob,
    build_code_directory,
    build_signature,
    parse_signature,
)
from macbuild.macho.constants import FAT_MAGIC, FAT_MAGIC_64, LC, Cpu, FileType, Platform
from macbuild.macho.entitlements import entitlements_der, exec_flags, load_plist
from macbuild.macho.file import FatSlice, open_macho
from macbuild.macho.image import HEADER_SIZE, Image, Segment
from macbuild.macho.pages import hash_pages
from macbuild.macho.verify import check_blobs, check_layout, executable_segments, info_plist

__all__ = ["SignOptions", "default_identifier", "refresh", "sign_bytes", "sign_file", "sign_private"]

_SIGNABLE = frozenset({FileType.EXECUTE, FileType.DYLIB, FileType.BUNDLE, FileType.DYLINKER})
_PAGE_SHIFT = 12
_COMMAND_SIZE = 16
_DIGITS = "0123456789"
_FORGET = "sign it as if it had no signature: macbuild macho sign --no-preserve FILE"


@dataclass(frozen=True, kw_only=True)
class SignOptions:
    """What a new signature says.

    Parameters
    ----------
    identifier
        None keeps that of the old signature, or derives one from the file name as codesign does.
    flags
        `CodeFlag`s; ADHOC is always added. None keeps the old ones, LINKER_SIGNED included unless entitlements or
        requirements are given.
    entitlements
        XML property list; empty removes them, None keeps them.
    requirements
        A blob with a set of requirements; None keeps it, and is an empty set where there was none.
    preserve
        False forgets the old signature, as `codesign --force` does. Otherwise a file with a valid ad hoc signature gets
        the very same code directories.
    """

    identifier: str | None = None
    flags: int | None = None
    entitlements: bytes | None = None
    requirements: bytes | None = None
    preserve: bool = True


@dataclass(frozen=True)
class _Plan:
    """All that is decided before the pages are hashed.

    `kept` bytes of the old image stay, `header` is written over their start, the signature follows at `code_limit`.
    """

    kept: int
    header: bytes
    code_limit: int
    directories: tuple[CodeDirectoryFields, ...]
    components: dict[int, bytes]
    padded: bool
    room: int

    @property
    def size(self) -> int:
        """Bytes of the signed image."""
        return self.code_limit + self.room

    def build(self, code: memoryview) -> bytes:
        """Hash the code, with its new header, and return the signature filled up to its room."""
        return self.assemble([hash_pages(code, 1 << each.page_shift, each.hash_type) for each in self.directories])

    def assemble(self, hashes: Sequence[bytes]) -> bytes:
        """Put the signature together."""
        blobs = dict(self.components)
        for index, (fields, value) in enumerate(zip(self.directories, hashes, strict=True)):
            slot = Slot.ALTERNATE + index - 1 if index else Slot.CODE_DIRECTORY
            blobs[slot] = build_code_directory(fields, value)
        return build_signature(blobs, padded=self.padded).ljust(self.room, b"\0")


def sign_private(path: Path, options: SignOptions | None = None) -> None:
    """Sign a file in place. The file must be private: never run, and of no worth if this fails.

    Raises
    ------
    HeaderRoomError
        If the load command of a first signature does not fit.
    MachOError, SignatureError
        If the file or its old signature is malformed; the file is not changed then.
    StoreError
        If it cannot be written.
    """
    _sign(path, options or SignOptions(), path.name)


def sign_file(path: Path, options: SignOptions | None = None, *, output: Path | None = None) -> None:
    """Sign a file into a new inode beside it, or into `output`; nothing changes on an error.

    A file that has been run must not be signed in place: the kernel remembers the old signature of its inode.
    Raises the same as `sign_private`.
    """
    with open_macho(path):  # It tells what is wrong with an input better than copying does.
        target = path if output is None else output
    with new_file(target, like=path) as private:
        shutil.copyfile(path, private)
        _sign(private, options or SignOptions(), target.name)


def sign_bytes(data: bytes, name: str, options: SignOptions | None = None) -> bytes:
    """Sign a thin image in memory; from `name`, its file name, an identifier may be derived."""
    image = Image(data, 0, len(data), name)
    plan = _plan(image, options or SignOptions(), name, image)
    code = bytearray(image.read(0, plan.kept).ljust(plan.code_limit, b"\0"))
    code[: len(plan.header)] = plan.header
    return bytes(code) + plan.build(memoryview(code))


def refresh(data: bytearray | mmap.mmap, image: Image, touched: Sequence[tuple[int, int]]) -> bool:
    """Hash the touched pages of an ad hoc signed image again and correct its signature in place.

    Parameters
    ----------
    data
        The whole file, already edited, writable.
    image
        Where the image lies in it; its load commands are read again.
    touched
        Ranges that were edited: start and stop in bytes from the start of the image.

    Returns
    -------
    bool
        False, with nothing changed, where this is not enough: there is no ad hoc signature, it does not fit the image
        any more, or the edit reached the signature or what a special slot seals. Sign it anew then.
    """
    try:
        current = Image(data, image.offset, image.size, image.where)
        signature = check_layout(current)
    except MacbuildError:
        return False
    limit = signature.main.code_limit
    if signature.cms or any(not 0 <= start <= stop <= limit for start, stop in touched):
        return False
    start_of_signature = image.offset + limit
    with memoryview(data) as whole, whole[image.offset : image.offset + limit] as code:
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


def _sign(path: Path, options: SignOptions, name: str) -> None:
    with open_macho(path) as macho:
        plans = [_plan(image, options, name, macho.images[0]) for image in macho.images]
        slices = macho.fat
        wide = macho.is_fat and struct.unpack_from(">I", macho.data)[0] == FAT_MAGIC_64
    with os_errors(path):
        if slices:
            with new_file(path, like=path) as output, path.open("rb") as source, output.open("r+b") as file:
                offsets = _lay_out(file, source, slices, plans, wide=wide)
                for offset, plan in zip(offsets, plans, strict=True):
                    _write(file, offset, plan)
        else:
            with path.open("r+b") as file:
                file.truncate(plans[0].kept)
                file.truncate(plans[0].code_limit)
                _write(file, 0, plans[0])


def _lay_out(
    file: BinaryIO, source: BinaryIO, slices: Sequence[FatSlice], plans: Sequence[_Plan], *, wide: bool
) -> list[int]:
    """Write the fat header and copy what stays of each slice to where it belongs now."""
    layout = ">2I2QI4x" if wide else ">5I"
    position = 8 + len(slices) * struct.calcsize(layout)
    header = struct.pack(">2I", FAT_MAGIC_64 if wide else FAT_MAGIC, len(slices))
    offsets = []
    for entry, plan in zip(slices, plans, strict=True):
        position = _round_up(position, 1 << entry.align)
        if not wide and position + plan.size > 0xFFFFFFFF:
            raise MachOError("more than 4 GiB need a 64-bit fat header", where=file.name)
        header += struct.pack(layout, entry.cputype, entry.cpusubtype, position, plan.size, entry.align)
        offsets.append(position)
        position += plan.size
    file.write(header)
    for entry, plan, offset in zip(slices, plans, offsets, strict=True):
        file.seek(offset)
        copy_range(source, file, entry.offset, plan.kept)
    file.truncate(position)
    return offsets


def _write(file: BinaryIO, offset: int, plan: _Plan) -> None:
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


@dataclass(frozen=True)
class _Request:
    """What a new signature of one image must say, from the options and from the old signature if that is preserved.

    `name` and `first` are the file name and the first slice, from which all slices derive the same identifier.
    """

    image: Image
    options: SignOptions
    old: Signature | None
    name: str
    first: Image

    @cached_property
    def flags(self) -> int:
        """Flags of the code directories."""
        if self.options.flags is not None:
            if self.options.flags & ~sum(CodeFlag):
                raise UsageError(f"unknown signature flags {self.options.flags:#x}", where=self.image.where)
            return self.options.flags | CodeFlag.ADHOC
        flags = CodeFlag.ADHOC | (self.old.main.flags if self.old else 0)
        if self.options.entitlements or self.options.requirements is not None:
            flags &= ~CodeFlag.LINKER_SIGNED
        return flags

    @property
    def linker_signed(self) -> bool:
        """Whether the signature has the short form of linkers: a single code directory."""
        return bool(self.flags & CodeFlag.LINKER_SIGNED)

    @property
    def padded(self) -> bool:
        """Whether the old signature has the layout of LLVM's linker, and keeps it."""
        old = self.old
        return self.linker_signed and old is not None and len(old.blobs) == 1 and old.main.blob.offset % 8 == 0

    @cached_property
    def identifier(self) -> str:
        """The signing identifier."""
        if self.options.identifier is not None:
            if not self.options.identifier or "\0" in self.options.identifier:
                raise UsageError("a signing identifier must not be empty", where=self.image.where)
            return self.options.identifier
        return self.old.main.identifier if self.old else default_identifier(self.first, self.name)

    @cached_property
    def components(self) -> dict[int, bytes]:
        """Blobs that special slots seal."""
        old = self.old
        components = dict(old.components) if old else {}
        if not self.linker_signed:
            components.setdefault(Slot.REQUIREMENTS, EMPTY_REQUIREMENTS)
        if old and old.cms:
            # Its requirements name a certificate, which an ad hoc signature has not.
            components[Slot.REQUIREMENTS] = EMPTY_REQUIREMENTS
        if self.options.requirements is not None:
            components[Slot.REQUIREMENTS] = self._requirements(self.options.requirements)
        if self.options.entitlements is not None:
            components.pop(Slot.ENTITLEMENTS, None)
            components.pop(Slot.ENTITLEMENTS_DER, None)
        if self.options.entitlements:
            components[Slot.ENTITLEMENTS] = build_blob(Magic.ENTITLEMENTS, self.options.entitlements)
            components[Slot.ENTITLEMENTS_DER] = build_blob(
                Magic.ENTITLEMENTS_DER, entitlements_der(self.options.entitlements, self.image.where)
            )
        return components

    def _requirements(self, blob: bytes) -> bytes:
        if blob[:8] != struct.pack(">2I", Magic.REQUIREMENTS, len(blob)):
            raise SignatureError("the requirements are no blob with a set of them", where=self.image.where)
        return blob

    @property
    def hash_types(self) -> tuple[HashType, ...]:
        """Kinds of hash, the weakest first."""
        if self.old:
            has_sha1 = any(directory.hash_type is HashType.SHA1 for directory in self.old.code_directories)
        else:
            has_sha1 = not self.linker_signed
        return (HashType.SHA1, HashType.SHA256) if has_sha1 and _needs_sha1(self.image) else (HashType.SHA256,)

    def special(self, hash_type: HashType) -> dict[int, bytes]:
        """Hashes of the special slots; those of a bundle's files stay what they were."""
        hashes = {slot: hash_type.digest(data) for slot, data in self.components.items()}
        section = info_plist(self.image)
        sealed = self.old.best.special_slots if self.old else {}
        if section and (Slot.INFO_PLIST in sealed or not (self.old or self.linker_signed)):
            hashes[Slot.INFO_PLIST] = hash_type.digest(self.image.read(section.offset, section.size))
        outside = {Slot.INFO_PLIST, Slot.RESOURCES} & sealed.keys() - hashes.keys()
        for directory in self.old.code_directories if self.old and outside else ():
            if directory.hash_type is hash_type:
                hashes |= {slot: directory.special_slots[slot] for slot in outside & directory.special_slots.keys()}
        return hashes

    @property
    def exec_flags(self) -> int:
        """Flags of the executable segment."""
        if self.image.filetype != FileType.EXECUTE:
            return 0
        xml = self.components.get(Slot.ENTITLEMENTS)
        return ExecFlag.MAIN_BINARY | (exec_flags(xml[8:], self.image.where) if xml else 0)

    @property
    def runtime(self) -> int:
        """Version of the hardened runtime: the old one, else that of the SDK."""
        version = self.image.build_version
        return (self.old.main.runtime if self.old else 0) or (version.sdk if version else 0)

    def directory(self, hash_type: HashType, code_limit: int) -> CodeDirectoryFields:
        """Put the fields of a code directory together."""
        segments = executable_segments(self.image, linker_signed=self.linker_signed)
        before = (self.old.main.exec_base, self.old.main.exec_limit) if self.old else None
        exec_base, exec_limit = before if before in segments else segments[0]
        return CodeDirectoryFields(
            identifier=self.identifier,
            team_id=self.old.main.team_id if self.old and not self.old.cms else None,
            flags=self.flags,
            code_limit=code_limit,
            hash_type=hash_type,
            page_shift=self.old.main.page_shift if self.old else _PAGE_SHIFT,
            exec_base=exec_base,
            exec_limit=exec_limit,
            exec_flags=self.exec_flags,
            runtime=self.runtime,
            special=self.special(hash_type),
            padded=self.padded,
        )


def _plan(image: Image, options: SignOptions, name: str, first: Image) -> _Plan:
    if image.filetype not in _SIGNABLE:
        raise MachOError(f"a file of type {image.kind} is not signed", where=image.where)
    linkedit = _last_segment(image)
    place = image.signature_range
    old = _parse_old(image, place) if place and options.preserve else None
    request = _Request(image, options, old, name, first)
    kept = place[0] if place else image.size
    code_limit = _round_up(kept, 16)
    directories = tuple(request.directory(hash_type, code_limit) for hash_type in request.hash_types)
    blobs = dict(request.components)
    if not request.linker_signed:
        blobs[Slot.CMS] = ADHOC_CMS
    plan = _Plan(kept, b"", code_limit, directories, blobs, request.padded, 0)
    unhashed = plan.assemble([bytes(fields.code_count * fields.hash_type.size) for fields in directories])
    _check_kept(unhashed, image, kept)
    length = len(unhashed)
    room = place[1] if place and old and place[1] >= length else _round_up(length, 16)
    return replace(plan, header=_header(image, linkedit, code_limit, room), room=room)


def _parse_old(image: Image, place: tuple[int, int]) -> Signature:
    try:
        return parse_signature(image.read(*place), image.where)
    except SignatureError as error:
        error.hint = _FORGET
        raise


def _check_kept(signature: bytes, image: Image, kept: int) -> None:
    """Refuse to make a signature that would not verify, because of what it takes over from the image or the old one."""
    section = info_plist(image)
    if section is not None and not image.commands_end + _COMMAND_SIZE <= section.offset <= kept - section.size:
        raise MachOError("the embedded Info.plist overlaps the load commands or the signature", where=image.where)
    try:
        check_blobs(parse_signature(signature, image.where), image)
    except SignatureError as error:
        error.hint = _FORGET
        raise


def _last_segment(image: Image) -> Segment:
    """Return __LINKEDIT, checked to be where a signature can be put."""
    linkedit = image.segment("__LINKEDIT")
    if linkedit is None:
        raise MachOError("no __LINKEDIT segment, so no place for a signature", where=image.where)
    end = linkedit.fileoff + linkedit.filesize
    for segment in image.segments:
        behind = segment.fileoff + segment.filesize > linkedit.fileoff and segment.filesize
        if segment is not linkedit and (behind or segment.vmaddr > linkedit.vmaddr):
            raise MachOError(f"segment {segment.name} stands behind __LINKEDIT", where=image.where)
    if end != image.size:
        raise MachOError(f"{image.size - end} bytes follow __LINKEDIT", where=image.where)
    place = image.signature_range
    if place and (place[0] < max(linkedit.fileoff, image.commands_end) or sum(place) != end):
        raise MachOError("the old signature is not at the end of __LINKEDIT", where=image.where)
    return linkedit


def _header(image: Image, linkedit: Segment, start: int, size: int) -> bytes:
    """Return header and load commands with the new place of the signature and the new size of __LINKEDIT."""
    if start + size > 0xFFFFFFFF:
        raise MachOError("too large for a signature, which must start below 4 GiB", where=image.where)
    header = bytearray(image.read(0, image.commands_end))
    command = image.command(LC.CODE_SIGNATURE)
    if command is not None:
        struct.pack_into("<2I", header, command.offset + 8, start, size)
    else:
        if image.header_room < _COMMAND_SIZE:
            raise HeaderRoomError(
                f"a signature needs {_COMMAND_SIZE} bytes for its load command, {max(image.header_room, 0)} are free",
                where=image.where,
                hint="link with -headerpad",
            )
        struct.pack_into("<2I", header, 16, len(image.commands) + 1, image.sizeofcmds + _COMMAND_SIZE)
        header += struct.pack("<4I", LC.CODE_SIGNATURE, _COMMAND_SIZE, start, size)
    filesize = start + size - linkedit.fileoff
    if filesize != linkedit.filesize or filesize > linkedit.vmsize:
        vmsize = _round_up(filesize, 0x4000 if image.cpu is Cpu.ARM64 else 0x1000)
        struct.pack_into("<Q", header, linkedit.command.offset + 32, vmsize)
        struct.pack_into("<Q", header, linkedit.command.offset + 48, filesize)
    return bytes(header)


def _needs_sha1(image: Image) -> bool:
    """Tell whether the image may run where SHA-256 is not known: `MachORep::prepareForSigning` of Apple's Security."""
    version = image.build_version
    return version is None or (version.platform == Platform.MACOS and version.minos < 10 << 16 | 11 << 8 | 4)


def default_identifier(image: Image, name: str) -> str:
    """Derive a signing identifier from a file name as `codesign --sign -` does.

    It is the bundle identifier of an embedded Info.plist. Else an extension that is no number goes, numbers at the end
    but for the first go, and a name without a dot gets the UUID of the image (or the SHA-1 hash of its load commands).

    Source: `DiskRep::canonicalIdentifier`, `SecCodeSigner::Signer::prepare` and `MachORep::identificationFor` of
    Apple's Security.
    """
    section = info_plist(image)
    if section is not None:
        bundle = load_plist(image.read(section.offset, section.size), "embedded Info.plist", image.where)
        if isinstance(identifier := bundle.get("CFBundleIdentifier"), str) and identifier:
            return identifier
    stem, _, extension = name.rpartition(".")
    if extension and extension[0] not in _DIGITS:
        name = stem or name
    if name[:1] not in f"{_DIGITS}.":
        stem = name.rstrip(f"{_DIGITS}.")
        first_number = re.match(r"\.?[0-9]*", name[len(stem) :])
        name = stem + (first_number[0] if first_number else "")
    if "." in name:
        return name
    if image.uuid is not None:
        return f"{name}-{b'UUID'.hex()}{image.uuid}"
    # Of the header only the 28 bytes that a 32-bit one has.
    commands = image.read(0, 28) + image.read(HEADER_SIZE, image.sizeofcmds)
    return f"{name}-{hashlib.sha1(commands, usedforsecurity=False).hexdigest()}"


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
