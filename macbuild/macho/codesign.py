"""Parse and build the blobs of an embedded code signature.

Source of the format: `bsd/sys/codesign.h` and `osfmk/kern/cs_blobs.h` of XNU. All numbers in it are big-endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cached_property

from macbuild.errors import SignatureError

__all__ = [
    "ADHOC_CMS",
    "EMPTY_REQUIREMENTS",
    "Blob",
    "CodeDirectory",
    "CodeDirectoryFields",
    "CodeFlag",
    "ExecFlag",
    "HashType",
    "Magic",
    "Signature",
    "Slot",
    "build_blob",
    "build_code_directory",
    "build_signature",
    "parse_signature",
]


class Magic(IntEnum):
    """First word of each kind of blob."""

    REQUIREMENTS = 0xFADE0C01
    CODE_DIRECTORY = 0xFADE0C02
    EMBEDDED_SIGNATURE = 0xFADE0CC0
    ENTITLEMENTS = 0xFADE7171
    ENTITLEMENTS_DER = 0xFADE7172
    LAUNCH_CONSTRAINT = 0xFADE8181
    WRAPPER = 0xFADE0B01


class Slot(IntEnum):
    """Number of a blob in a signature; 1 to 11 are also the special slots of a code directory."""

    CODE_DIRECTORY = 0
    INFO_PLIST = 1
    REQUIREMENTS = 2
    RESOURCES = 3
    APPLICATION = 4
    ENTITLEMENTS = 5
    DISK_IMAGE = 6
    ENTITLEMENTS_DER = 7
    CONSTRAINT_SELF = 8
    CONSTRAINT_PARENT = 9
    CONSTRAINT_RESPONSIBLE = 10
    CONSTRAINT_LIBRARY = 11
    ALTERNATE = 0x1000
    CMS = 0x10000


class CodeFlag(IntFlag):
    """`flags` of a code directory."""

    HOST = 0x1
    ADHOC = 0x2
    FORCE_HARD = 0x100
    FORCE_KILL = 0x200
    FORCE_EXPIRATION = 0x400
    RESTRICT = 0x800
    ENFORCEMENT = 0x1000
    LIBRARY_VALIDATION = 0x2000
    RUNTIME = 0x10000
    LINKER_SIGNED = 0x20000


class ExecFlag(IntFlag):
    """`execSegFlags` of a code directory."""

    MAIN_BINARY = 0x1
    ALLOW_UNSIGNED = 0x10
    DEBUGGER = 0x20
    JIT = 0x40
    SKIP_LIBRARY_VALIDATION = 0x80
    CAN_LOAD_CDHASH = 0x100
    CAN_EXEC_CDHASH = 0x200


class HashType(IntEnum):
    """`hashType` of a code directory."""

    SHA1 = 1
    SHA256 = 2
    SHA256_TRUNCATED = 3
    SHA384 = 4

    @property
    def algorithm(self) -> str:
        """Name for hashlib."""
        return {1: "sha1", 2: "sha256", 3: "sha256", 4: "sha384"}[self]

    @property
    def size(self) -> int:
        """Bytes of one hash in the code directory."""
        return {1: 20, 2: 32, 3: 20, 4: 48}[self]

    @property
    def label(self) -> str:
        """Name for people, as `SHA-256`."""
        return {1: "SHA-1", 2: "SHA-256", 3: "SHA-256 (20 bytes)", 4: "SHA-384"}[self]

    @property
    def strength(self) -> int:
        """Rank by which the system chooses among code directories (`cs_hash` priorities in XNU)."""
        return {1: 1, 3: 2, 2: 3, 4: 4}[self]

    def digest(self, data: bytes | memoryview) -> bytes:
        """Hash data as a slot of the code directory holds it."""
        return hashlib.new(self.algorithm, data, usedforsecurity=False).digest()[: self.size]


# Size of the header in bytes by version: the first string must come after it.
HEADER_SIZES = {0x20001: 44, 0x20100: 48, 0x20200: 52, 0x20300: 64, 0x20400: 88, 0x20500: 96}
CONSTRAINTS = range(Slot.CONSTRAINT_SELF, Slot.CONSTRAINT_LIBRARY + 1)
ALTERNATES = range(Slot.ALTERNATE, Slot.ALTERNATE + 5)
MAX_SPECIAL = 0x100
MAX_BLOBS = 32
PAGE_SHIFTS = range(12, 15)  # XNU refuses any other: cs_validate_codedirectory, bsd/kern/ubc_subr.c.

_SLOT_MAGICS = {
    Slot.CODE_DIRECTORY: Magic.CODE_DIRECTORY,
    Slot.REQUIREMENTS: Magic.REQUIREMENTS,
    Slot.ENTITLEMENTS: Magic.ENTITLEMENTS,
    Slot.ENTITLEMENTS_DER: Magic.ENTITLEMENTS_DER,
    Slot.CMS: Magic.WRAPPER,
    **dict.fromkeys(CONSTRAINTS, Magic.LAUNCH_CONSTRAINT),
    **dict.fromkeys(ALTERNATES, Magic.CODE_DIRECTORY),
}


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob of a signature: its slot, its offset in bytes from the start of the signature, and all its bytes."""

    slot: int
    offset: int
    data: bytes

    @property
    def payload(self) -> bytes:
        """The bytes after magic and length."""
        return self.data[8:]


@dataclass(frozen=True)
class CodeDirectory:
    """A code directory, checked to be well-formed: each byte of it is a field, a string, a hash, or a zero."""

    blob: Blob
    version: int
    flags: int
    hash_offset: int
    ident_offset: int
    special_count: int
    code_count: int
    code_limit: int
    hash_type: HashType
    platform: int
    page_shift: int
    team_offset: int
    exec_base: int
    exec_limit: int
    exec_flags: int
    runtime: int

    @property
    def page_size(self) -> int:
        """Bytes of a page."""
        return 1 << self.page_shift

    @cached_property
    def identifier(self) -> str:
        """The signing identifier."""
        return self._string(self.ident_offset).decode("utf-8", "surrogateescape")

    @cached_property
    def team_id(self) -> str | None:
        """The team that an identity belongs to."""
        return self._string(self.team_offset).decode("utf-8", "surrogateescape") if self.team_offset else None

    def _string(self, offset: int) -> bytes:
        return self.blob.data[offset : self.blob.data.index(b"\0", offset)]

    @property
    def special_slots(self) -> dict[int, bytes]:
        """Hashes of the special slots that are in use."""
        size = self.hash_type.size
        hashes = {
            slot: self.blob.data[self.hash_offset - slot * size : self.hash_offset - (slot - 1) * size]
            for slot in range(1, self.special_count + 1)
        }
        return {slot: value for slot, value in hashes.items() if any(value)}

    @property
    def code_hashes(self) -> memoryview:
        """Hashes of all pages, one after the other."""
        return memoryview(self.blob.data)[self.hash_offset :]

    @property
    def cdhash(self) -> str:
        """The name by which the system knows the code: the hash of the code directory, as 40 hexadecimal digits."""
        return hashlib.new(self.hash_type.algorithm, self.blob.data, usedforsecurity=False).hexdigest()[:40]

    @property
    def sealed(self) -> tuple[object, ...]:
        """The fields that all code directories of one signature must have in common."""
        return (
            self.identifier,
            self.team_id,
            self.version,
            self.flags,
            self.code_limit,
            self.page_shift,
            self.platform,
            (self.exec_base, self.exec_limit, self.exec_flags),
            self.runtime,
            sorted(self.special_slots),
        )


@dataclass(frozen=True)
class Signature:
    """The blobs of an embedded signature. `length` is its size in bytes; bytes after it are unused."""

    length: int
    blobs: tuple[Blob, ...]
    code_directories: tuple[CodeDirectory, ...]

    def blob(self, slot: int) -> Blob | None:
        """Return the blob of a slot."""
        return next((blob for blob in self.blobs if blob.slot == slot), None)

    @property
    def main(self) -> CodeDirectory:
        """The code directory of slot 0."""
        return self.code_directories[0]

    @property
    def best(self) -> CodeDirectory:
        """The code directory with the strongest hash, which is the one the system uses."""
        return max(self.code_directories, key=lambda directory: directory.hash_type.strength)

    @property
    def components(self) -> dict[int, bytes]:
        """Blobs that special slots seal, by slot."""
        return {blob.slot: blob.data for blob in self.blobs if 0 < blob.slot < Slot.ALTERNATE}

    @property
    def cms(self) -> bytes:
        """The CMS message of a signature made with an identity; empty for an ad hoc one."""
        blob = self.blob(Slot.CMS)
        return b"" if blob is None else blob.payload

    @property
    def entitlements(self) -> bytes | None:
        """The entitlements as an XML property list."""
        blob = self.blob(Slot.ENTITLEMENTS)
        return None if blob is None else blob.payload


def parse_signature(data: bytes, where: object) -> Signature:
    """Parse the signature that LC_CODE_SIGNATURE names; check every length and offset, and that unused bytes are zero.

    Parameters
    ----------
    data
        The bytes that the load command names; the signature may be shorter.
    where
        How to name the image in an error.

    Raises
    ------
    SignatureError
        If the blobs are malformed.
    """
    if len(data) < 12:
        raise SignatureError(f"{len(data)} bytes are too few for a code signature", where=where)
    magic, length, count = struct.unpack_from(">3I", data)
    if magic != Magic.EMBEDDED_SIGNATURE:
        raise SignatureError(f"the code signature has the magic {magic:#x}", where=where)
    if not 0 < count <= MAX_BLOBS or not 12 + 8 * count <= length <= len(data):
        raise SignatureError(f"the code signature claims {count} blobs in {length} bytes", where=where)
    blobs = tuple(_read_blobs(data[:length], count, where))
    if len({blob.slot for blob in blobs}) != count:
        raise SignatureError("the code signature has two blobs in one slot", where=where)
    _check_tiling(data[:length], 12 + 8 * count, blobs, where)
    found = [blob for blob in blobs if _SLOT_MAGICS.get(blob.slot) == Magic.CODE_DIRECTORY]
    directories = tuple(_parse_code_directory(blob, where) for blob in sorted(found, key=lambda blob: blob.slot))
    if not directories or [each.blob.slot for each in directories] != [0, *ALTERNATES][: len(directories)]:
        raise SignatureError("the code signature has no code directory, or in the wrong slot", where=where)
    return Signature(length, blobs, directories)


def _read_blobs(data: bytes, count: int, where: object) -> Iterator[Blob]:
    for index in range(count):
        slot, offset = struct.unpack_from(">2I", data, 12 + 8 * index)
        if offset + 8 > len(data):
            raise SignatureError(f"the blob of slot {slot:#x} starts past the end of the signature", where=where)
        magic, size = struct.unpack_from(">2I", data, offset)
        if size < 8 or offset + size > len(data):
            raise SignatureError(f"the blob of slot {slot:#x} has the impossible length {size}", where=where)
        wanted = _SLOT_MAGICS.get(slot)
        if slot >= Slot.ALTERNATE and wanted is None:
            raise SignatureError(f"the code signature has a blob in the unknown slot {slot:#x}", where=where)
        if wanted is not None and magic != wanted:
            raise SignatureError(f"the blob of slot {slot:#x} has the magic {magic:#x}", where=where)
        yield Blob(slot, offset, data[offset : offset + size])


def _check_tiling(data: bytes, start: int, blobs: Sequence[Blob], where: object) -> None:
    """Refuse overlaps, and bytes other than zeros between the blobs and up to the end."""
    position = start
    for blob in sorted(blobs, key=lambda blob: blob.offset):
        if blob.offset < position:
            raise SignatureError(f"the blob of slot {blob.slot:#x} overlaps another one", where=where)
        if any(data[position : blob.offset]):
            raise SignatureError(f"there are bytes before the blob of slot {blob.slot:#x}", where=where)
        position = blob.offset + len(blob.data)
    if position != len(data):
        raise SignatureError(f"the blobs end at byte {position} of a signature of {len(data)}", where=where)


def _parse_code_directory(blob: Blob, where: object) -> CodeDirectory:
    data = blob.data
    version = struct.unpack_from(">I", data, 8)[0] if len(data) >= 12 else 0
    header = HEADER_SIZES.get(version)
    if header is None or len(data) < header:
        raise SignatureError(f"a code directory has version {version:#x} and {len(data)} bytes", where=where)
    # Fields that the version does not have read as zero.
    fields = struct.unpack_from(">6I4B4I4Q2I", data[:header].ljust(96, b"\0"), 12)
    flags, hash_offset, ident_offset, special_count, code_count, limit = fields[:6]
    hash_size, kind, platform, page_shift, spare2, scatter, team_offset, spare3 = fields[6:14]
    limit64, exec_base, exec_limit, exec_flags, runtime, pre_encrypt = fields[14:]
    if scatter or pre_encrypt:
        raise SignatureError("a code directory with scatter or pre-encryption hashes is not supported", where=where)
    if spare2 or spare3:
        raise SignatureError("a reserved field of a code directory is not zero", where=where)
    if kind not in HashType.__members__.values() or hash_size != HashType(kind).size:
        raise SignatureError(f"a code directory has hashes of type {kind} and {hash_size} bytes", where=where)
    if page_shift not in PAGE_SHIFTS:
        raise SignatureError(f"a code directory has pages of 2^{page_shift} bytes", where=where)
    if limit64 and limit != 0xFFFFFFFF:
        raise SignatureError("a code directory has two code limits", where=where)
    limit = limit64 or limit
    if code_count != -(-limit >> page_shift):
        raise SignatureError(f"a code directory has {code_count} pages for {limit} bytes of code", where=where)
    if special_count > MAX_SPECIAL or hash_offset + code_count * hash_size != len(data):
        raise SignatureError(f"the hashes of a code directory do not end at its {len(data)} bytes", where=where)
    strings_end = hash_offset - special_count * hash_size
    _check_strings(data, header, (ident_offset, team_offset), strings_end, where)
    return CodeDirectory(
        blob, version, flags, hash_offset, ident_offset, special_count, code_count, limit, HashType(kind),
        platform, page_shift, team_offset, exec_base, exec_limit, exec_flags, runtime,
    )  # fmt: skip


def _check_strings(data: bytes, start: int, offsets: tuple[int, int], end: int, where: object) -> None:
    """Check identifier and team: in this order, ended by a zero, not empty, and nothing but zeros around them."""
    position = start
    for name, offset in zip(("identifier", "team"), offsets, strict=True):
        if name == "team" and not offset:
            continue
        if not position <= offset < end or not data[offset] or any(data[position:offset]):
            raise SignatureError(f"the {name} of a code directory is not where it should be", where=where)
        position = data.find(b"\0", offset, end)
        if position < 0:
            raise SignatureError(f"the {name} of a code directory does not end", where=where)
    if any(data[position:end]):
        raise SignatureError("there are bytes between the strings and the hashes of a code directory", where=where)


@dataclass(frozen=True, kw_only=True)
class CodeDirectoryFields:
    """The contents of a code directory, apart from the page hashes.

    Parameters
    ----------
    special
        Hashes of the special slots that are in use.
    padded
        True to fill the identifier up to 16 bytes, as LLVM's linker does.
    runtime
        Version of the hardened runtime, packed as X.Y.Z in 16, 8 and 8 bits.
    """

    identifier: str
    team_id: str | None
    flags: int
    code_limit: int
    hash_type: HashType
    page_shift: int
    exec_base: int
    exec_limit: int
    exec_flags: int
    runtime: int
    special: dict[int, bytes]
    padded: bool

    @property
    def code_count(self) -> int:
        """Number of pages."""
        return -(-self.code_limit >> self.page_shift)


def build_code_directory(fields: CodeDirectoryFields, code_hashes: bytes) -> bytes:
    """Build a code directory of version 0x20400, or 0x20500 with the hardened runtime, as codesign and linkers do."""
    with_runtime = bool(fields.flags & CodeFlag.RUNTIME)
    version = 0x20500 if with_runtime else 0x20400
    header = HEADER_SIZES[version]
    strings = fields.identifier.encode("utf-8", "surrogateescape") + b"\0"
    if fields.padded:
        strings += bytes(-len(strings) % 16)
    team_offset = 0
    if fields.team_id is not None:
        team_offset = header + len(strings)
        strings += fields.team_id.encode("utf-8", "surrogateescape") + b"\0"
    size = fields.hash_type.size
    count = max(fields.special, default=0)
    special = b"".join(fields.special.get(slot, bytes(size)) for slot in range(count, 0, -1))
    hash_offset = header + len(strings) + len(special)
    body = struct.pack(
        ">7I4B4I4Q",
        version, fields.flags, hash_offset, header, count, fields.code_count,
        fields.code_limit, size, fields.hash_type, 0, fields.page_shift, 0, 0, team_offset, 0, 0,
        fields.exec_base, fields.exec_limit, fields.exec_flags,
    )  # fmt: skip
    if with_runtime:
        body += struct.pack(">2I", fields.runtime, 0)
    return build_blob(Magic.CODE_DIRECTORY, body + strings + special + code_hashes)


def build_blob(magic: int, payload: bytes) -> bytes:
    """Put magic and length before a payload."""
    return struct.pack(">2I", magic, 8 + len(payload)) + payload


def build_signature(blobs: dict[int, bytes], *, padded: bool = False) -> bytes:
    """Put blobs together in the order of their slots; `padded` starts them at a multiple of 8, as LLVM does."""
    offset = 12 + 8 * len(blobs)
    padding = bytes(-offset % 8) if padded else b""
    offset += len(padding)
    index = struct.pack(">I", len(blobs))
    for slot, data in sorted(blobs.items()):
        index += struct.pack(">2I", slot, offset)
        offset += len(data)
    return build_blob(Magic.EMBEDDED_SIGNATURE, index + padding + b"".join(data for _, data in sorted(blobs.items())))


EMPTY_REQUIREMENTS = build_blob(Magic.REQUIREMENTS, bytes(4))
ADHOC_CMS = build_blob(Magic.WRAPPER, b"")
