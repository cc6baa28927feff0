"""Decide on the contents and the place of an ad hoc signature, before any page is hashed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from macbuild.errors import HeaderRoomError, MachOError, SignatureError, UsageError
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
from macbuild.macho.constants import FAT_MAGIC_64, LC, Cpu, FileType, Platform
from macbuild.macho.entitlements import entitlements_der, exec_flags
from macbuild.macho.file import FatSlice, MachOFile
from macbuild.macho.identifier import default_identifier
from macbuild.macho.image import Image, Segment
from macbuild.macho.pages import hash_pages
from macbuild.macho.verify import check_blobs, executable_segments, info_plist

__all__ = ["ImagePlan", "SignOptions", "SigningPlan", "plan_image", "plan_signing", "round_up"]

_SIGNABLE = frozenset({FileType.EXECUTE, FileType.DYLIB, FileType.BUNDLE, FileType.DYLINKER})
_PAGE_SHIFT = 12
_COMMAND_SIZE = 16
_FORGET = "sign it as if it had no signature: macbuild macho sign --no-preserve FILE"


@dataclass(frozen=True, kw_only=True)
class SignOptions:
    """The contents of a new signature.

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
class ImagePlan:
    """Everything about an image that is decided before its pages are hashed.

    `kept` bytes of the old image are kept, `header` replaces their start, and the signature follows at `code_limit`.
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
        """Assemble the signature."""
        blobs = dict(self.components)
        for index, (fields, value) in enumerate(zip(self.directories, hashes, strict=True)):
            slot = Slot.ALTERNATE + index - 1 if index else Slot.CODE_DIRECTORY
            blobs[slot] = build_code_directory(fields, value)
        return build_signature(blobs, padded=self.padded).ljust(self.room, b"\0")


@dataclass(frozen=True)
class SigningPlan:
    """The plan to sign a file: one for each slice, and its fat header if it has one."""

    slices: tuple[ImagePlan, ...]
    fat: tuple[FatSlice, ...]
    wide: bool


def plan_signing(macho: MachOFile, options: SignOptions, name: str) -> SigningPlan:
    """Decide on the signatures of all slices, before any page is hashed.

    Parameters
    ----------
    macho
        The file, parsed.
    options
        The contents of a new signature.
    name
        The file name, which an identifier may be derived from.

    Raises
    ------
    HeaderRoomError
        If the load command of a first signature does not fit.
    MachOError, SignatureError
        If the file or its old signature is malformed.
    """
    plans = tuple(plan_image(image, options, name, macho.images[0]) for image in macho.images)
    wide = macho.is_fat and struct.unpack_from(">I", macho.data)[0] == FAT_MAGIC_64
    return SigningPlan(plans, macho.fat, wide)


@dataclass(frozen=True)
class _Request:
    """The contents of a new signature of one image, from the options and the old signature if that is preserved.

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
        """True if the signature has the short form of linkers: a single code directory."""
        return bool(self.flags & CodeFlag.LINKER_SIGNED)

    @property
    def padded(self) -> bool:
        """True if the old signature has the layout of LLVM's linker, which is kept."""
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
        """Blobs that are sealed by special slots."""
        old = self.old
        components = dict(old.components) if old else {}
        if not self.linker_signed:
            components.setdefault(Slot.REQUIREMENTS, EMPTY_REQUIREMENTS)
        if old and old.cms:
            # Its requirements name a certificate, which an ad hoc signature does not have.
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
            raise SignatureError("the requirements are not a blob with a set of requirements", where=self.image.where)
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
        """Hashes of the special slots; those of a bundle's files are kept."""
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
        """Assemble the fields of a code directory."""
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


def plan_image(image: Image, options: SignOptions, name: str, first: Image) -> ImagePlan:
    """Decide on the signature of one image; `first` is the first image of the file."""
    if image.filetype not in _SIGNABLE:
        raise MachOError(f"a file of type {image.kind} cannot be signed", where=image.where)
    linkedit = _last_segment(image)
    place = image.signature_range
    old = _parse_old(image, place) if place and options.preserve else None
    request = _Request(image, options, old, name, first)
    kept = place[0] if place else image.size
    code_limit = round_up(kept, 16)
    directories = tuple(request.directory(hash_type, code_limit) for hash_type in request.hash_types)
    blobs = dict(request.components)
    if not request.linker_signed:
        blobs[Slot.CMS] = ADHOC_CMS
    plan = ImagePlan(kept, b"", code_limit, directories, blobs, request.padded, 0)
    unhashed = plan.assemble([bytes(fields.code_count * fields.hash_type.size) for fields in directories])
    _check_kept(unhashed, image, kept)
    length = len(unhashed)
    room = place[1] if place and old and place[1] >= length else round_up(length, 16)
    return replace(plan, header=_header(image, linkedit, code_limit, room), room=room)


def _parse_old(image: Image, place: tuple[int, int]) -> Signature:
    try:
        return parse_signature(image.read(*place), image.where)
    except SignatureError as error:
        error.hint = _FORGET
        raise


def _check_kept(signature: bytes, image: Image, kept: int) -> None:
    """Refuse to make a signature that would not verify because of the image or the old signature."""
    section = info_plist(image)
    if section is not None and not image.commands_end + _COMMAND_SIZE <= section.offset <= kept - section.size:
        raise MachOError("the embedded Info.plist overlaps the load commands or the signature", where=image.where)
    try:
        check_blobs(parse_signature(signature, image.where), image)
    except SignatureError as error:
        error.hint = _FORGET
        raise


def _last_segment(image: Image) -> Segment:
    """Return __LINKEDIT, checked to be in a place where a signature can be added."""
    linkedit = image.segment("__LINKEDIT")
    if linkedit is None:
        raise MachOError("no __LINKEDIT segment, so no place for a signature", where=image.where)
    end = linkedit.fileoff + linkedit.filesize
    for segment in image.segments:
        behind = segment.fileoff + segment.filesize > linkedit.fileoff and segment.filesize
        if segment is not linkedit and (behind or segment.vmaddr > linkedit.vmaddr):
            raise MachOError(f"segment {segment.name} comes after __LINKEDIT", where=image.where)
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
        vmsize = round_up(filesize, 0x4000 if image.cpu is Cpu.ARM64 else 0x1000)
        struct.pack_into("<Q", header, linkedit.command.offset + 32, vmsize)
        struct.pack_into("<Q", header, linkedit.command.offset + 48, filesize)
    return bytes(header)


def _needs_sha1(image: Image) -> bool:
    """Tell whether the image may run where SHA-256 is not known: `MachORep::prepareForSigning` of Apple's Security."""
    version = image.build_version
    return version is None or (version.platform == Platform.MACOS and version.minos < 10 << 16 | 11 << 8 | 4)


def round_up(value: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-value // step) * step
