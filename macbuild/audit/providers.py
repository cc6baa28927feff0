"""Libraries outside the tree: what they offer to an artifact, and which packages bring them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from pathlib import Path

from macbuild.audit.memory import Memory, known_exports
from macbuild.documents import check_regular
from macbuild.errors import MachOError, UsageError
from macbuild.files import files_below, os_errors
from macbuild.macho.constants import LC
from macbuild.macho.file import ParsedFile, is_macho, read_macho
from macbuild.macho.tbd import MAX_TEXT, Stub, read_stubs
from macbuild.target import pack_version

__all__ = ["Provider", "Providers", "required_folders"]

_SUFFIXES = frozenset({".dylib", ".so", ".tbd"})
_MAX_METADATA = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Provider:
    """One architecture of a library: its install name, compatibility version (packed) and what it re-exports.

    It was read from `origin`, a parsed dylib or a stub.
    """

    path: Path
    name: str
    arch: str
    compatibility: int
    reexports: tuple[str, ...]
    origin: ParsedFile | Stub


class Providers:
    """Libraries that are available, by install name and architecture; the first of equal ones counts.

    Parameters
    ----------
    paths
        Dylibs, stubs (`.tbd`) or folders with such files; other files in a folder are skipped.
    memory
        Where to find and keep what dylibs export.

    Raises
    ------
    UsageError
        If there is nothing at a path.
    MachOError
        If a dylib or stub is malformed.
    FileError
        If a folder or stub cannot be read.
    """

    def __init__(self, paths: Iterable[Path] = (), memory: Memory | None = None) -> None:
        self._memory = memory
        self._found: dict[tuple[str, str], Provider] = {}
        self._offers: dict[tuple[str, str], frozenset[bytes] | None] = {}
        for path in paths:
            for file in _files(path):
                for provider in _stubs(file) if file.suffix == ".tbd" else _dylibs(file):
                    self._found.setdefault((provider.name, provider.arch), provider)

    def archs(self, name: str) -> list[str]:
        """Return the architectures that a dependency is provided for, by its own name or as `@rpath/<file name>`."""
        names = _names(name)
        return sorted({arch for found, arch in self._found if found in names})

    def get(self, name: str, arch: str) -> Provider | None:
        """Return what provides a dependency on an architecture, or None."""
        return next((self._found[found, arch] for found in _names(name) if (found, arch) in self._found), None)

    def offers(self, provider: Provider) -> frozenset[bytes] | None:
        """Return the names that a library and those that it re-exports offer; None if one of them is not available."""
        key = (provider.name, provider.arch)
        if key not in self._offers:
            self._offers[key] = self._all(provider)
        return self._offers[key]

    def _all(self, provider: Provider) -> frozenset[bytes] | None:
        names: set[bytes] = set()
        seen = {provider.name}
        todo = [provider]
        while todo:
            current = todo.pop()
            names |= _own(current, self._memory)
            for name in current.reexports:
                following = self.get(name, provider.arch)
                if following is None:
                    return None
                if following.name not in seen:
                    seen.add(following.name)
                    todo.append(following)
        return frozenset(names)


def _own(provider: Provider, memory: Memory | None) -> frozenset[bytes]:
    """Return the names that a library exports itself."""
    if isinstance(provider.origin, Stub):
        return frozenset(name.encode("utf-8", "surrogateescape") for name in provider.origin.symbols)
    with provider.origin.open() as file:
        image = next(image for image in file.images if image.arch == provider.arch)
        return known_exports(image, memory).names


def _names(name: str) -> tuple[str, str]:
    return name, f"@rpath/{name.rpartition('/')[2]}"


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        with os_errors(path):
            for file in files_below(path):
                if file.suffix in _SUFFIXES and file.is_file() and (file.suffix == ".tbd" or is_macho(file)):
                    yield file
    elif not os.path.lexists(path):
        raise UsageError("there is no such file or folder to provide symbols", where=path)
    else:
        check_regular(path, UsageError)


def _dylibs(path: Path) -> Iterator[Provider]:
    file = read_macho(path)
    for image in file.images:
        if image.id is not None:
            reexports = tuple(dylib.name for dylib in image.dylibs if dylib.cmd == LC.REEXPORT_DYLIB)
            yield Provider(path, image.id.name, image.arch, image.id.compatibility_version, reexports, file)


def _stubs(path: Path) -> Iterator[Provider]:
    with os_errors(path):
        size = path.stat().st_size
        if size > MAX_TEXT:
            raise MachOError(f"{size} bytes are too many for a stub", where=path)
        data = path.read_bytes()
    for stub in read_stubs(data.decode("utf-8", "surrogateescape"), str(path)):
        yield Provider(path, stub.install_name, stub.arch, pack_version(stub.compatibility), stub.reexports, stub)


def required_folders(root: Path, requirements: Sequence[str] = ()) -> frozenset[str]:
    """Return the normalized names of the distributions that a wheel needs, usually also the names of their folders.

    Parameters
    ----------
    root
        An unpacked wheel or a stage of one; its `<name>.dist-info/METADATA` says what it requires.
    requirements
        Further requirements, as in `Requires-Dist`, for a stage that has no metadata yet.

    A requirement of an extra does not count, nor does a line that is not a requirement.
    """
    lines = list(requirements)
    for path in sorted(root.glob("*.dist-info/METADATA")):
        if path.is_file():
            with os_errors(path), path.open("rb") as file:
                header = BytesHeaderParser().parsebytes(file.read(_MAX_METADATA))
            lines += [str(line) for line in header.get_all("Requires-Dist", [])]
    return frozenset(name for line in lines if (name := _required(line)) is not None)


def _required(line: str) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return None
    for_an_extra = requirement.marker is not None and re.search(r"\bextra\b", str(requirement.marker))
    return None if for_an_extra else canonicalize_name(requirement.name)
