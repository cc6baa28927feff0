"""Verify the embedded code signature of an image: every page, every special slot, every length and offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from macbuild.errors import SignatureError
from macbuild.macho.codesign import CodeDirectory, CodeFlag, ExecFlag, HashType, Signature, Slot, parse_signature
from macbuild.macho.constants import Cpu, FileType
from macbuild.macho.entitlements import exec_flags
from macbuild.macho.file import open_macho
from macbuild.macho.image import Image, Section
from macbuild.macho.pages import hash_pages

__all__ = [
    "SignatureFacts",
    "check_blobs",
    "check_layout",
    "executable_segments",
    "info_plist",
    "read_signature",
    "verify_file",
    "verify_image",
]

_KNOWN_FLAGS = sum(CodeFlag)
_KNOWN_EXEC_FLAGS = sum(ExecFlag)
_OUTSIDE = {Slot.INFO_PLIST: "Info.plist of the bundle", Slot.RESOURCES: "resources of the bundle"}


@dataclass(frozen=True, kw_only=True)
class SignatureFacts:
    """The contents of a code signature.

    Parameters
    ----------
    flags
        Names of the code directory flags, in small letters.
    cdhash
        The hash of the strongest code directory, 40 hexadecimal digits.
    hashes
        Kinds of hash in use, the main code directory first.
    kind
        `adhoc`, `linker-signed`, or `cms` for a signature made with an identity.
    unchecked
        Parts that cannot be verified from the file alone: the certificate chain of a CMS signature, and what is sealed
        but is not in the file (Info.plist and resources of a bundle).
    """

    arch: str
    identifier: str
    flags: tuple[str, ...]
    cdhash: str
    hashes: tuple[str, ...]
    page_size: int
    pages: int
    code_limit: int
    kind: str
    entitlements: str | None
    team_id: str | None
    runtime_version: str | None
    unchecked: tuple[str, ...]


def verify_file(path: Path) -> tuple[SignatureFacts, ...]:
    """Verify all slices of a Mach-O file.

    Raises
    ------
    SignatureError
        If a slice is not signed, or its signature does not match.
    MachOError
        If it is not a Mach-O file.
    """
    with open_macho(path) as file:
        return tuple(verify_image(image) for image in file.images)


def verify_image(image: Image) -> SignatureFacts:
    """Compute every page hash and every special slot again and compare them with the signature.

    For a signature made with an identity the hashes are verified, and that the CMS message is about them; the
    certificate chain is not. Raises `SignatureError` for the first mismatch.
    """
    signature = check_layout(image)
    with memoryview(image.data) as whole, whole[image.offset : image.offset + signature.main.code_limit] as code:
        for directory in signature.code_directories:
            _check_pages(directory, code, image.where)
    return _facts(image, signature)


def read_signature(image: Image) -> SignatureFacts | None:
    """Read the signature without checking it against the image; return None if there is none.

    Raises `SignatureError` if its blobs are malformed.
    """
    place = image.signature_range
    return None if place is None else _facts(image, parse_signature(image.read(*place), image.where))


def check_layout(image: Image) -> Signature:
    """Check everything about a signature except the page hashes.

    Raises
    ------
    SignatureError
        If there is no signature, or it does not fit the image.
    """
    place = image.signature_range
    if place is None:
        raise SignatureError("not signed", where=image.where, hint="macbuild macho sign FILE")
    _check_place(image, *place)
    signature = parse_signature(image.read(*place), image.where)
    main = signature.main
    if main.code_limit != place[0]:
        raise SignatureError(
            f"the signature covers {main.code_limit} bytes, but starts at byte {place[0]}", where=image.where
        )
    check_blobs(signature, image)
    return signature


def check_blobs(signature: Signature, image: Image) -> None:
    """Check that the blobs of a signature agree with each other and with the image, except for place and page hashes.

    Raises `SignatureError` for the first mismatch.
    """
    main = signature.main
    for other in signature.code_directories[1:]:
        if other.sealed != main.sealed:
            raise SignatureError("the code directories contradict each other", where=image.where)
    if len({directory.hash_type for directory in signature.code_directories}) != len(signature.code_directories):
        raise SignatureError("two code directories have the same kind of hash", where=image.where)
    _check_kind(signature, image.where)
    _check_executable_segment(signature, image)
    for directory in signature.code_directories:
        _check_special_slots(directory, signature, image)


def _check_place(image: Image, start: int, size: int) -> None:
    linkedit = image.segment("__LINKEDIT")
    if start % 16:
        raise SignatureError(f"the signature starts at byte {start}, not a multiple of 16", where=image.where)
    if linkedit is None or start < linkedit.fileoff:
        raise SignatureError("the signature is not inside __LINKEDIT", where=image.where)
    if start + size != linkedit.fileoff + linkedit.filesize:
        raise SignatureError("the signature does not end where __LINKEDIT ends", where=image.where)
    if start + size != image.size:
        raise SignatureError(f"{image.size - start - size} bytes follow the signature", where=image.where)
    if linkedit.vmsize < linkedit.filesize:
        raise SignatureError("__LINKEDIT is larger in the file than in memory", where=image.where)


def _check_kind(signature: Signature, where: str) -> None:
    main = signature.main
    if main.flags & ~_KNOWN_FLAGS or main.exec_flags & ~_KNOWN_EXEC_FLAGS:
        raise SignatureError(f"unknown flags {main.flags:#x}, {main.exec_flags:#x}", where=where)
    if bool(main.flags & CodeFlag.ADHOC) == bool(signature.cms):
        raise SignatureError("neither ad hoc nor made with an identity, or both", where=where)
    if not signature.cms and main.platform:
        raise SignatureError("an ad hoc signature that claims to be of the platform", where=where)
    if signature.cms and not any(kind.digest(main.blob.data) in signature.cms for kind in HashType):
        raise SignatureError("the CMS message is about another code directory", where=where)


def _check_executable_segment(signature: Signature, image: Image) -> None:
    directory = signature.main
    if directory.version < 0x20400:
        return
    allowed = executable_segments(image, linker_signed=bool(directory.flags & CodeFlag.LINKER_SIGNED))
    if (directory.exec_base, directory.exec_limit) not in allowed:
        raise SignatureError(
            f"the executable segment {directory.exec_base}, {directory.exec_limit} does not match __TEXT",
            where=image.where,
        )
    is_main = bool(directory.exec_flags & ExecFlag.MAIN_BINARY)
    if is_main != (image.filetype == FileType.EXECUTE):
        raise SignatureError("the main binary flag does not fit the file type", where=image.where)
    further = directory.exec_flags & ~ExecFlag.MAIN_BINARY
    xml = signature.entitlements
    if further and (xml is None or further & ~exec_flags(xml, image.where)):
        raise SignatureError("executable segment flags without the entitlements for them", where=image.where)


def _check_special_slots(directory: CodeDirectory, signature: Signature, image: Image) -> None:
    if image.cpu is Cpu.X86_64 and directory.page_shift != 12:
        raise SignatureError(f"pages of {directory.page_size} bytes, which Intel Macs refuse", where=image.where)
    sealed = directory.special_slots
    found = dict(signature.components)
    section = info_plist(image)
    if section is not None and Slot.INFO_PLIST in sealed:
        found[Slot.INFO_PLIST] = image.read(section.offset, section.size)
    for slot, data in found.items():
        if sealed.get(slot) != directory.hash_type.digest(data):
            raise SignatureError(
                f"{_slot_name(slot)} does not match its {directory.hash_type.label} hash", where=image.where
            )
    for slot in sealed.keys() - found.keys():
        # Files of a bundle are not available here; but no hash is mostly zeros, as a damaged empty slot is.
        if slot not in _OUTSIDE or sealed[slot].count(0) > len(sealed[slot]) // 2:
            raise SignatureError(f"{_slot_name(slot)} is sealed but missing", where=image.where)


def _slot_name(slot: int) -> str:
    try:
        return f"special slot {slot} ({Slot(slot).name.lower().replace('_', ' ')})"
    except ValueError:
        return f"special slot {slot}"


def _check_pages(directory: CodeDirectory, code: memoryview, where: str) -> None:
    actual = hash_pages(code, directory.page_size, directory.hash_type)
    if actual == directory.code_hashes:
        return
    size = directory.hash_type.size
    page = next(
        index
        for index in range(directory.code_count)
        if actual[index * size : (index + 1) * size] != directory.code_hashes[index * size : (index + 1) * size]
    )
    start = page * directory.page_size
    stop = min(start + directory.page_size, directory.code_limit)
    raise SignatureError(
        f"page {page} (bytes {start} to {stop}) does not match its {directory.hash_type.label} hash",
        where=where,
        hint="the file was changed after it was signed: macbuild macho sign FILE",
    )


def executable_segments(image: Image, *, linker_signed: bool) -> list[tuple[int, int]]:
    """Return the allowed pairs of base and limit of the executable segment in a code directory, the usual one first."""
    text = image.segment("__TEXT")
    if text is None:
        return [(0, 0)]
    pairs = [(text.fileoff, text.filesize)]
    if linker_signed:
        # Apple's linker of Xcode 15 and later gives the size of the section (seen in ONNX Runtime 1.23 and 1.30).
        pairs += [(text.fileoff, section.size) for section in text.sections if section.name == "__text"]
    if image.build_version is None:
        # Zeros for code without a platform: MachORep::execSegBase of Apple's Security.
        pairs.append((0, 0))
    return pairs


def info_plist(image: Image) -> Section | None:
    """Return the section that holds an embedded Info.plist, which special slot 1 seals."""
    text = image.segment("__TEXT")
    sections = () if text is None else text.sections
    return next((section for section in sections if section.name == "__info_plist"), None)


def _facts(image: Image, signature: Signature) -> SignatureFacts:
    best = signature.best
    kind = "cms" if signature.cms else "linker-signed" if best.flags & CodeFlag.LINKER_SIGNED else "adhoc"
    unchecked = ["certificate chain"] if signature.cms else []
    embedded = {Slot.INFO_PLIST} if info_plist(image) else set()
    unchecked += [name for slot, name in _OUTSIDE.items() if slot in best.special_slots and slot not in embedded]
    entitlements = signature.entitlements
    runtime = best.runtime
    return SignatureFacts(
        arch=image.arch,
        identifier=best.identifier,
        flags=tuple(_flag_names(best.flags)),
        cdhash=best.cdhash,
        hashes=tuple(directory.hash_type.label for directory in signature.code_directories),
        page_size=best.page_size,
        pages=best.code_count,
        code_limit=best.code_limit,
        kind=kind,
        entitlements=None if entitlements is None else entitlements.decode("utf-8", "replace"),
        team_id=best.team_id,
        runtime_version=f"{runtime >> 16}.{runtime >> 8 & 0xFF}.{runtime & 0xFF}" if runtime else None,
        unchecked=tuple(unchecked),
    )


def _flag_names(flags: int) -> Iterator[str]:
    for flag in CodeFlag:
        if flags & flag:
            yield str(flag.name).lower().replace("_", "-")
    if flags & ~_KNOWN_FLAGS:
        yield f"{flags & ~_KNOWN_FLAGS:#x}"
