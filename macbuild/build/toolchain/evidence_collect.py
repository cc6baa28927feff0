"""Collect evidence: what published wheels import from macOS, and the oldest macOS that these wheels claim to run on."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from macbuild.build.toolchain.evidence import ARCHS, Evidence, evidence_folder, framework_name, leaf_name, load_evidence
from macbuild.errors import ArchiveError, MachOError, UsageError
from macbuild.files import atomic_path
from macbuild.macho.constants import HeaderFlag, Platform
from macbuild.macho.file import has_macho_magic, parse_macho
from macbuild.macho.image import Image
from macbuild.macho.symbols import WEAK_LOOKUP, read_imports, read_symbols
from macbuild.macho.system import is_system
from macbuild.target import format_version, pack_version

__all__ = ["Summary", "SystemImport", "collect", "system_imports"]

MAX_MEMBER = 1 << 30  # bytes; the largest known library in a wheel, LibTorch's, has a third of it
_NEVER = 0xFFFFFFFF
_LEAST = pack_version("1.0")
_UNRELEASED = pack_version("999.0")  # Apple's own builds against unreleased systems, as Metal in jax-metal 0.1.1
_FIRST_MACOS = pack_version("10.4")
_FIRST_ARM64 = pack_version("11.0")
_INSTALL_NAME = re.compile(r"/(?:usr/lib|System/Library)/[\w./+-]{1,300}", re.ASCII)
_WHEEL_NAME = re.compile(r"[\w.+!-]{1,250}\.whl", re.ASCII)
_PLATFORM = re.compile(r"macosx_(\d{1,3})_(\d{1,2})_(\w+)", re.ASCII)
_TAGGED = {"arm64": ("arm64",), "x86_64": ("x86_64",), "universal2": ARCHS, "intel": ("x86_64",)}
_NAME = re.compile(r"[!-&(-~]{1,2000}")  # visible ASCII without the quote that ends a string in TOML
_WEAK_REFERENCE, _REFERENCE_TO_WEAK = 0x40, 0x80  # N_WEAK_REF and N_REF_TO_WEAK of <mach-o/nlist.h>
_HEAD = """\
# Symbols of {name},
# each with the lowest macOS of the published wheels that import it, and the wheel that says so.
# Made by `macbuild stubs collect`. What counts, and the few entries made by hand: docs/how-to/stubs.md
"""


class SystemImport(NamedTuple):
    """A symbol that an image needs from a library, by the library's install name."""

    library: str
    name: str
    weak_definition: bool


class Summary(NamedTuple):
    """The state of a collection: what was read and what it proves."""

    wheels: int
    images: int
    skipped: int
    added: int
    lowered: int


class _Claim(NamedTuple):
    """Ordered by what proves more: the lower macOS, then the lower SDK, which is 0xFFFFFFFF where none is told."""

    macos: int
    sdk: int
    wheel: str


@dataclass
class _Library:
    install_name: str
    current: int = _LEAST
    compatibility: int = _NEVER
    weak: set[str] = field(default_factory=set)
    claims: dict[tuple[str, str], _Claim] = field(default_factory=dict)


def collect(wheels: Sequence[Path], folder: Path | None = None, libraries: Sequence[str] = ()) -> Summary:
    """Read the imports of all Mach-O files in wheels and add what they prove to the evidence.

    The result does not depend on the order of the wheels, nor on how many are given at once.
    Malformed images, images for other systems and images without two-level names are skipped.

    Parameters
    ----------
    wheels
        Wheels, or folders with wheels anywhere below.
    folder
        The evidence to add to; macbuild's own by default.
    libraries
        Install names of libraries to collect beside those that have a file already.

    Raises
    ------
    ArchiveError
        If a wheel cannot be read.
    UsageError
        If there is no wheel, or a library is not part of macOS.
    """
    folder = folder or evidence_folder()
    paths = sorted({found for path in wheels for found in _wheels_in(path)}, key=lambda path: path.name)
    if not paths:
        raise UsageError("no wheel found", where=", ".join(map(str, wheels)))
    tables = _tables(folder, libraries)
    before = _lowest(tables)
    images = skipped = 0
    for path in paths:
        floors = _tagged_minimum(path)
        for image in _images(path):
            taken = image is not None and _add(image, path.name, floors, tables)
            images += taken
            skipped += not taken
    after = _lowest(tables)
    for table in tables.values():
        _write(folder, table)
    lowered = sum(after[key] < macos for key, macos in before.items())
    return Summary(len(paths), images, skipped, len(after) - len(before), lowered)


def _tables(folder: Path, libraries: Sequence[str]) -> dict[str, _Library]:
    """Return what is known and what is asked for, by `framework_name`."""
    tables = {framework_name(name): _table(evidence) for name, evidence in load_evidence(folder).items()}
    for name in libraries:
        if not _INSTALL_NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a library of macOS", hint="give an install name below /usr/lib or /System"
            )
        tables.setdefault(framework_name(name), _Library(name))
    leaves: dict[str, str] = {}
    for table in tables.values():
        other = leaves.setdefault(leaf_name(table.install_name), table.install_name)
        if other != table.install_name:
            raise UsageError(f"{table.install_name} has the file name of {other}", hint="only one of them can be kept")
    return tables


def _lowest(tables: dict[str, _Library]) -> dict[tuple[str, str, str], int]:
    return {(key, *symbol): claim.macos for key, table in tables.items() for symbol, claim in table.claims.items()}


def _wheels_in(path: Path) -> list[Path]:
    if path.is_dir():
        return list(path.rglob("*.whl"))
    return [path]


def _tagged_minimum(wheel: Path) -> dict[str, int]:
    """Return the lowest macOS, packed, that the tags of a wheel claim for each architecture; 0 where they claim none.

    Some files claim a macOS below that of their wheel, on which nobody installs them.
    """
    try:
        tags = parse_wheel_filename(wheel.name)[3] if _WHEEL_NAME.fullmatch(wheel.name) else frozenset[Tag]()
    except InvalidWheelFilename:
        tags = frozenset()
    if not tags:
        raise ArchiveError("is not named as a wheel is", where=wheel)
    found = dict.fromkeys(ARCHS, _NEVER)
    for tag in tags:
        match = _PLATFORM.fullmatch(tag.platform)
        version = pack_version(f"{match[1]}.{match[2]}") if match else 0
        for arch in _TAGGED.get(match[3], ()) if match else ARCHS:
            found[arch] = min(found[arch], version)
    return found


def _images(wheel: Path) -> Iterator[Image | None]:
    """Give the images of all Mach-O members, None for each file that is malformed."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                with archive.open(member) as file:
                    head = file.read(8)
                    if not has_macho_magic(head):
                        continue
                    if member.file_size > MAX_MEMBER:
                        yield None
                        continue
                    data = head + file.read(MAX_MEMBER)
                try:
                    yield from parse_macho(data, f"{wheel.name}: {member.filename}").images
                except MachOError:
                    yield None
    except OSError as error:
        raise ArchiveError(f"cannot be read: {error.strerror or error}", where=wheel) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise ArchiveError(f"not a readable wheel: {error}", where=wheel) from error


def _add(image: Image, wheel: str, floors: dict[str, int], tables: dict[str, _Library]) -> bool:
    """Add the imports of an image; False if it proves nothing."""
    try:
        claim = _claim(image, wheel, floors)
        if claim is None:
            return False
        imports, dylibs = list(system_imports(image)), image.dylibs
    except MachOError:
        return False
    for dylib in dylibs:
        table = tables.get(framework_name(dylib.name))
        if table is not None:
            if dylib.current_version != _UNRELEASED:
                table.current = max(table.current, dylib.current_version)
            table.compatibility = min(table.compatibility, dylib.compatibility_version)
    for entry in imports:
        table = tables.get(framework_name(entry.library))
        if table is not None and _NAME.fullmatch(entry.name):
            key = (image.arch, entry.name)
            table.claims[key] = min(claim, table.claims.get(key, claim))
            if entry.weak_definition:
                table.weak.add(entry.name)
    return True


def _claim(image: Image, wheel: str, floors: dict[str, int]) -> _Claim | None:
    version = image.build_version
    if version is None or version.platform != Platform.MACOS or version.minos < _FIRST_MACOS:
        return None
    floor = floors.get(image.arch, _NEVER)
    if floor == _NEVER or not image.flags & HeaderFlag.TWOLEVEL:
        return None
    first = _FIRST_ARM64 if image.arch == "arm64" else _FIRST_MACOS
    return _Claim(max(version.minos, floor, first), version.sdk or _NEVER, wheel)


def system_imports(image: Image) -> Iterator[SystemImport]:
    """Give what an image cannot be loaded without from libraries of macOS.

    Left out is what may be missing (weak imports, and everything from a library that may be missing itself) and what
    names no library (flat lookup). A chained import that is looked up among the weak definitions of all images has its
    library in the symbol table alone.

    Raises
    ------
    MachOError
        If the link-edit data are malformed.
    """
    libraries = {
        ordinal: dylib.name for ordinal, dylib in enumerate(image.dylibs, 1) if is_system(dylib.name) and not dylib.weak
    }
    undefined = {
        symbol.name: symbol for symbol in read_symbols(image) if symbol.undefined and symbol.desc >> 8 in libraries
    }
    for entry in read_imports(image):
        symbol = undefined.get(entry.name)
        ordinal, weak_definition = entry.ordinal, entry.ordinal == WEAK_LOOKUP
        if symbol is not None:
            weak_definition = weak_definition or bool(symbol.desc & _REFERENCE_TO_WEAK)
            if ordinal == WEAK_LOOKUP and not symbol.desc & _WEAK_REFERENCE:
                ordinal = symbol.desc >> 8
        if ordinal in libraries and not entry.weak:
            yield SystemImport(libraries[ordinal], entry.name.decode("utf-8", "replace"), weak_definition)


def _table(evidence: Evidence) -> _Library:
    file = evidence.file
    table = _Library(file.install_name, pack_version(file.current_version), pack_version(file.compatibility_version))
    table.weak.update(evidence.weak)
    for arch, claims in evidence.claims.items():
        for name, claim in claims.items():
            table.claims[arch, name] = _Claim(pack_version(claim.macos), pack_version(claim.sdk) or _NEVER, claim.wheel)
    return table


def _write(folder: Path, table: _Library) -> None:
    groups: dict[tuple[str, _Claim], list[str]] = {}
    for (arch, name), claim in table.claims.items():
        groups.setdefault((arch, claim), []).append(name)
    lines = [
        _HEAD.format(name=table.install_name),
        f'install_name = "{table.install_name}"',
        f'current_version = "{format_version(table.current)}"',
        f'compatibility_version = "{format_version(min(table.compatibility, table.current))}"',
    ]
    if table.weak:
        lines.append(f"weak = {_names(table.weak)}")
    for (arch, claim), names in sorted(groups.items()):
        sdk = 0 if claim.sdk == _NEVER else claim.sdk
        lines += ["", "[[evidence]]", f'arch = "{arch}"', f'macos = "{format_version(claim.macos)}"']
        lines += [f'sdk = "{format_version(sdk)}"', f'wheel = "{claim.wheel}"', f"symbols = {_names(names)}"]
    path = folder / f"{leaf_name(table.install_name)}.toml"
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", "utf-8")


def _names(names: Sequence[str] | set[str]) -> str:
    return "'''\n" + "\n".join(sorted(names)) + "\n'''"
