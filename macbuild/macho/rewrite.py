"""Plan an edit of an image without writing: the new load commands and the patches elsewhere."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from macbuild.errors import HeaderRoomError, MachOError
from macbuild.macho.constants import LC, LOAD_DYLIB_COMMANDS, Cpu, Platform
from macbuild.macho.image import HEADER_SIZE, Image, LoadCommand
from macbuild.macho.ordinals import remap

__all__ = ["Edits", "SlicePlan", "plan_edits"]

_DYLIB_USE_MARKER = 0x1A741800  # In place of the time stamp, it tells `struct dylib_use_command` of macOS 15.
_DYLIB_USE_WEAK_LINK = 1


@dataclass(frozen=True, kw_only=True)
class Edits:
    """Changes of a Mach-O file, all made in one pass; the default is no change.

    Parameters
    ----------
    id
        The new install name of a dylib.
    change
        New name of a dependency by its old one.
    remove
        Dependencies to drop; nothing may bind to them.
    weaken
        Dependencies, by their old names, that may be missing from now on.
    rpaths
        The exact rpaths in order; it excludes the four other rpath edits.
    delete_rpaths, replace_rpaths, add_rpaths
        Made in this order. A name that is listed twice is deleted or replaced in both places.
    deduplicate_rpaths
        True to keep only the first of equal rpaths.
    minos, sdk
        Minimum macOS and SDK, packed as X.Y.Z in 16, 8 and 8 bits.
    strip_signature
        True to remove the code signature; a file without one is fine.
    """

    id: str | None = None
    change: Mapping[str, str] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    weaken: frozenset[str] = frozenset()
    rpaths: tuple[str, ...] | None = None
    add_rpaths: tuple[str, ...] = ()
    delete_rpaths: tuple[str, ...] = ()
    replace_rpaths: Mapping[str, str] = field(default_factory=dict)
    deduplicate_rpaths: bool = False
    minos: int | None = None
    sdk: int | None = None
    strip_signature: bool = False


@dataclass(frozen=True)
class SlicePlan:
    """The changes of one image.

    Parameters
    ----------
    where, arch
        How to name the image in an error, and its architecture.
    offset
        Where the image starts in the file, in bytes.
    old_size, size
        Size of the image in bytes before and after; only a stripped signature makes it smaller.
    patches
        New bytes by their offset from the start of the image; none means that there is nothing to do.
    """

    where: str
    arch: str
    offset: int
    old_size: int
    size: int
    patches: tuple[tuple[int, bytes], ...]


def plan_edits(images: Sequence[Image], edits: Edits, where: str) -> list[SlicePlan]:
    """Plan the edit of the images of one file.

    Parameters
    ----------
    images
        The slices that the edit is for.
    edits
        The changes; each slice takes those that apply to it.
    where
        How to name the file in an error.

    Raises
    ------
    HeaderRoomError
        If the load commands of an image no longer fit before its first content.
    MachOError
        If no image has what is to be changed, the edits contradict each other, or an image is malformed.
    """
    _refuse_contradictions(edits, where)
    _refuse_absent(images, edits, where)
    return [_plan(image, edits) for image in images]


def _refuse_contradictions(edits: Edits, where: str) -> None:
    others = edits.add_rpaths or edits.delete_rpaths or edits.replace_rpaths or edits.deduplicate_rpaths
    if edits.rpaths is not None and others:
        raise MachOError("a full list of rpaths excludes all other edits of rpaths", where=where)
    if both := sorted(edits.remove & (edits.change.keys() | edits.weaken)):
        raise MachOError(f"cannot remove and also change or weaken {both[0]}", where=where)
    if both := sorted(set(edits.delete_rpaths) & edits.replace_rpaths.keys()):
        raise MachOError(f"cannot delete and also replace the rpath {both[0]}", where=where)
    for names in (edits.rpaths or (), edits.add_rpaths):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise MachOError(f"the rpath {twice[0]} is given twice", where=where)
    for version in (edits.minos, edits.sdk):
        if version is not None and not 0 <= version < 1 << 32:
            raise MachOError(f"{version} is not a packed version", where=where)


def _refuse_absent(images: Sequence[Image], edits: Edits, where: str) -> None:
    def need(kind: str, wanted: Collection[str], there: list[str]) -> None:
        if absent := sorted(set(wanted) - set(there)):
            listed = ", ".join(dict.fromkeys(there)) or "none"
            raise MachOError(f"has no {kind} {absent[0]}; it has {listed}", where=where)

    need(
        "dependency",
        edits.change.keys() | edits.remove | edits.weaken,
        [dylib.name for image in images for dylib in image.dylibs],
    )
    need(
        "rpath",
        {*edits.delete_rpaths, *edits.replace_rpaths},
        [rpath for image in images for rpath in image.rpaths],
    )
    if edits.id is not None and not any(image.id for image in images):
        raise MachOError(f"has no id to set; it has {images[0].kind}", where=where, hint="only a dylib has an id")
    if edits.minos is not None or edits.sdk is not None:
        commands = [(image, command) for image in images for command in image.commands]
        if not any(_version_offset(image, command) for image, command in commands):
            listed = ", ".join(dict.fromkeys(command.name for _, command in commands))
            raise MachOError(f"has no LC_BUILD_VERSION for macOS and no older form of it; it has {listed}", where=where)
    for name in edits.add_rpaths:
        if all(name in _rpath_names(image, edits) for image in images):
            raise MachOError(f"has the rpath {name} already", where=where)


def _plan(image: Image, edits: Edits) -> SlicePlan:
    _refuse_double_dylib(image, edits)
    size = image.size
    if edits.strip_signature:
        size = _size_without_signature(image)
    commands = _new_commands(image, edits, size)
    body = b"".join(commands)
    more = len(body) - image.sizeofcmds
    if more and image.header_room < 0:
        raise MachOError("content overlaps the load commands, so their size cannot change", where=image.where)
    if more > image.header_room:
        raise HeaderRoomError(
            f"the load commands need {more} more bytes, {image.header_room} bytes are free",
            where=image.where,
            hint="use shorter names or fewer rpaths, or link it again with -headerpad_max_install_names",
        )
    header = bytearray(image.read(0, HEADER_SIZE))
    struct.pack_into("<2I", header, 16, len(commands), len(body))
    block = bytes(header) + body + bytes(max(-more, 0))
    patches = [] if block == image.read(0, len(block)) else [(0, block)]
    if edits.remove:
        patches += remap(image, _new_ordinals(image, edits.remove))
    return SlicePlan(image.where, image.arch, image.offset, image.size, size, tuple(patches))


def _refuse_double_dylib(image: Image, edits: Edits) -> None:
    before = Counter(dylib.name for dylib in image.dylibs)
    after: Counter[str] = Counter()
    for name, count in before.items():
        if name not in edits.remove:
            after[edits.change.get(name, name)] += count
    for old, new in edits.change.items():
        if after[new] > max(before[old], before[new]):
            # mach_o::Header::validStructureLoadCommands of dyld: "duplicate linked dylib".
            raise MachOError(
                f"would depend on {new} twice, which macOS refuses to load",
                where=image.where,
                hint=f"remove {old} instead of changing it, if nothing binds to it",
            )


def _new_ordinals(image: Image, removed: Collection[str]) -> list[int]:
    ordinals = []
    left = 0
    for dylib in image.dylibs:
        left += dylib.name not in removed
        ordinals.append(0 if dylib.name in removed else left)
    return ordinals


def _size_without_signature(image: Image) -> int:
    signature, linkedit = image.signature_range, image.segment("__LINKEDIT")
    if signature is None or linkedit is None or not linkedit.fileoff <= signature[0]:
        return image.size
    ends = {sum(signature), linkedit.fileoff + linkedit.filesize, image.size}
    return signature[0] if len(ends) == 1 and linkedit.fileoff >= image.commands_end else image.size


def _new_commands(image: Image, edits: Edits, size: int) -> list[bytes]:
    kept, extra = _new_rpaths(image, edits)
    rpaths = iter(kept)
    commands: list[bytes] = []
    last = None
    for command in image.commands:
        data = next(rpaths) if command.cmd == LC.RPATH else _new_command(image, command, edits, size)
        if data is not None:
            commands.append(data)
        if command.cmd == LC.RPATH:
            last = len(commands)
    last = len(commands) if last is None else last
    commands[last:last] = extra
    return commands


def _new_command(image: Image, command: LoadCommand, edits: Edits, size: int) -> bytes | None:
    if command.cmd == LC.ID_DYLIB and edits.id is not None:
        return _renamed(image, command, edits.id)
    if command.cmd in LOAD_DYLIB_COMMANDS:
        return _new_dylib(image, command, edits)
    if command.cmd == LC.CODE_SIGNATURE and edits.strip_signature:
        return None
    if command.cmd == LC.SEGMENT_64 and size != image.size:
        return _shortened(image, command, size)
    offset = _version_offset(image, command)
    if offset is None:
        return command.data
    data = bytearray(command.data)
    for index, version in enumerate((edits.minos, edits.sdk)):
        if version is not None:
            struct.pack_into("<I", data, offset + 4 * index, version)
    return bytes(data)


def _version_offset(image: Image, command: LoadCommand) -> int | None:
    """Return the offset of the minimum macOS in the command, which the SDK follows; None if it holds neither."""
    if command.cmd == LC.VERSION_MIN_MACOSX:
        image.fields(command, "<2I", command.name)
        return 8
    if command.cmd == LC.BUILD_VERSION and image.fields(command, "<4I", command.name)[0] == Platform.MACOS:
        return 12
    return None


def _new_dylib(image: Image, command: LoadCommand, edits: Edits) -> bytes | None:
    name = image.dylib(command).name
    if name in edits.remove:
        return None
    data = command.data
    if name in edits.change:
        data = _renamed(image, command, edits.change[name])
    return _weakened(image, command, data) if name in edits.weaken else data


def _weakened(image: Image, command: LoadCommand, data: bytes) -> bytes:
    if command.cmd not in {LC.LOAD_DYLIB, LC.LOAD_WEAK_DYLIB}:
        raise MachOError(f"{image.dylib(command).name} is a {command.name}, it cannot be weak", where=image.where)
    new = bytearray(data)
    struct.pack_into("<I", new, 0, LC.LOAD_WEAK_DYLIB)
    at, marker = struct.unpack_from("<2I", data, 8)
    if (at, marker) == (28, _DYLIB_USE_MARKER):
        new[24] |= _DYLIB_USE_WEAK_LINK
    return bytes(new)


def _shortened(image: Image, command: LoadCommand, size: int) -> bytes:
    linkedit = image.segment("__LINKEDIT")
    if linkedit is None or linkedit.command != command:
        return command.data
    page = 0x4000 if image.cpu is Cpu.ARM64 else 0x1000
    filesize = size - linkedit.fileoff
    data = bytearray(command.data)
    struct.pack_into("<Q", data, 32, -(-filesize // page) * page)
    struct.pack_into("<Q", data, 48, filesize)
    return bytes(data)


def _new_rpaths(image: Image, edits: Edits) -> tuple[list[bytes | None], list[bytes]]:
    """Return the new form of each LC_RPATH, None for one that is removed, and those to add after the last."""
    commands = [command for command in image.commands if command.cmd == LC.RPATH]
    if edits.rpaths is not None:
        there = {image.rpath(command): command.data for command in reversed(commands)}
        wanted = [there.get(name) or _rpath(image, name) for name in edits.rpaths]
        surplus = [None] * (len(commands) - len(wanted))
        return [*wanted[: len(commands)], *surplus], wanted[len(commands) :]
    names = _rpath_names(image, edits)
    for old, new in edits.replace_rpaths.items():
        if names.count(new) > max(image.rpaths.count(old), image.rpaths.count(new)):
            raise MachOError(
                f"replacing the rpath {old} would give {new} twice, which macOS refuses to load", where=image.where
            )
    kept = [
        name if name is None else command.data if name == old else _renamed(image, command, name)
        for command, old, name in zip(commands, image.rpaths, names, strict=True)
    ]
    return kept, [_rpath(image, name) for name in edits.add_rpaths if name not in names]


def _rpath_names(image: Image, edits: Edits) -> list[str | None]:
    """Return the new name of each present rpath, None for one that is removed."""
    names: list[str | None] = []
    seen: set[str] = set()
    for old in image.rpaths:
        name = edits.replace_rpaths.get(old, old)
        gone = old in edits.delete_rpaths or (edits.deduplicate_rpaths and name in seen)
        names.append(None if gone else name)
        if not gone:
            seen.add(name)
    return names


def _rpath(image: Image, name: str) -> bytes:
    return _with_name(image, struct.pack("<3I", LC.RPATH, 0, 12), name)


def _renamed(image: Image, command: LoadCommand, name: str) -> bytes:
    at = image.fields(command, "<I", command.name)[0]
    if image.string(command, at, 12) == name:
        return command.data
    return _with_name(image, command.data[:at], name)


def _with_name(image: Image, fixed: bytes, name: str) -> bytes:
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = b""
    if not raw or b"\0" in raw:
        raise MachOError(f"{name!r} cannot be written to a load command", where=image.where)
    size = len(fixed) + len(raw) + 1
    size += -size % 8
    return (fixed[:4] + struct.pack("<I", size) + fixed[8:] + raw).ljust(size, b"\0")
