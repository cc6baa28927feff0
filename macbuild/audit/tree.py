"""Read the files of a tree and the facts of each slice, which the rules check; every Mach-O file is parsed once."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from macbuild.audit.attributes import is_quarantined
from macbuild.audit.memory import Memory, SymbolSummary, contents_key, known_contents, known_exports, remember_contents
from macbuild.audit.policy import Parameters
from macbuild.errors import MachOError, SignatureError
from macbuild.files import os_errors, walk
from macbuild.macho.constants import FileType, HeaderFlag
from macbuild.macho.file import has_macho_magic, is_macho, open_macho
from macbuild.macho.image import BuildVersion, Dylib, Image
from macbuild.macho.symbols import Exports, Import, defined_names, read_imports
from macbuild.macho.verify import verify_image

if TYPE_CHECKING:
    from macbuild.source.archive.members import Member

__all__ = ["AuditedFile", "AuditedSlice", "AuditedTree", "MachO", "Where", "scan"]

Where: TypeAlias = Literal["inside", "outside", "missing"]

_MAX_LINKS = 40
_MAX_DYLIBS = 1000  # Each is looked for below each rpath.
_MAX_RPATHS = 100
_MAX_BUILD_PATHS = 10_000
_ARCHIVE_MAGIC = b"!<arch>\n"
_LINKED = frozenset({FileType.EXECUTE, FileType.DYLIB, FileType.BUNDLE})


@dataclass(frozen=True, slots=True)
class AuditedFile:
    """A file, folder, link or other thing in the tree. `target` is the text of a link, `mode` the bits of `st_mode`."""

    path: str
    mode: int
    target: str | None = None
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class AuditedSlice:
    """The facts of one architecture of a Mach-O file. `path` is relative to the tree.

    `signature` is the fault of its signature, None if there is none; `markers` are the runtime symbols that it defines.
    """

    path: str
    arch: str
    kind: str
    linked: bool
    two_level: bool
    id: Dylib | None
    dylibs: tuple[Dylib, ...]
    rpaths: tuple[str, ...]
    build: BuildVersion | None
    header_room: int
    exports: Exports
    imports: tuple[Import, ...]
    markers: frozenset[bytes]
    build_paths: tuple[str, ...]
    signed: bool
    signature: str | None

    @property
    def folder(self) -> str:
        """The folder that `@loader_path` means."""
        return posixpath.dirname(self.path)


@dataclass(frozen=True, slots=True)
class MachO:
    """A Mach-O file of the tree: its slices, or the reason why it cannot be read."""

    path: str
    slices: tuple[AuditedSlice, ...]
    error: str | None = None

    def slice(self, arch: str) -> AuditedSlice | None:
        """Return the slice of an architecture."""
        return next((entry for entry in self.slices if entry.arch == arch), None)


@dataclass
class AuditedTree:
    """A folder under audit.

    Parameters
    ----------
    root
        The folder; paths are relative to it, with slashes.
    parameters
        Those of the policy, which name the marker symbols and the strings to look for.
    base
        The folder inside `root` that paths in findings are relative to.
    verify_signatures
        True to compute the hashes of signatures.
    memory
        Where facts that take long to read are kept.
    """

    root: Path
    parameters: Parameters
    base: str = ""
    verify_signatures: bool = True
    memory: Memory | None = None
    entries: dict[str, AuditedFile] = field(default_factory=dict)
    machos: dict[str, MachO] = field(default_factory=dict)
    archives: list[str] = field(default_factory=list)
    _others: dict[str, MachO | None] = field(default_factory=dict)
    _resolved: dict[str, tuple[Where, str]] = field(default_factory=dict)

    def label(self, path: str) -> str:
        """Return a path as findings show it."""
        return posixpath.relpath(path, self.base) if self.base else path

    def slices(self) -> Iterator[AuditedSlice]:
        """Yield every slice that is under audit."""
        for macho in self.machos.values():
            yield from macho.slices

    def macho(self, path: str) -> MachO | None:
        """Return a Mach-O file by its path, also one that is not under audit but that others lead to."""
        found = self.machos.get(path)
        if found is None and path not in self.entries:
            if path not in self._others:
                place = self.root / path
                self._others[path] = self._read(path, audited=False) if place.is_file() and is_macho(place) else None
            found = self._others[path]
        return found

    def resolve(self, path: str) -> tuple[Where, str]:
        """Follow the links of a path as the file system does.

        Parameters
        ----------
        path
            Relative to the tree; `..` may be anywhere in it.

        Returns
        -------
        tuple[Where, str]
            Inside the tree and the real path, outside and the place where the path leaves the tree, or missing and the
            place where the path ends.
        """
        known = self._resolved.get(path)
        if known is None:
            known = self._resolved[path] = self._follow(path)
        return known

    def _follow(self, path: str) -> tuple[Where, str]:
        todo = path.split("/")[::-1]
        done: list[str] = []
        hops = 0
        while todo:
            part = todo.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                if not done:
                    return "outside", path
                done.pop()
                continue
            here = "/".join([*done, part])
            try:
                mode = os.lstat(self.root / here).st_mode
                target = os.readlink(self.root / here) if stat.S_ISLNK(mode) else None
            except (OSError, ValueError):
                return "missing", here
            if target is None:
                done.append(part)
                continue
            hops += 1
            if hops > _MAX_LINKS:
                return "missing", here
            if target.startswith("/"):
                if self.root.parent != self.root:
                    return "outside", here
                done = []
            todo += target.split("/")[::-1]
        return "inside", "/".join(done)

    def _read(self, path: str, *, audited: bool) -> MachO:
        try:
            with open_macho(self.root / path) as file:
                return MachO(path, tuple(self._facts(path, image, audited=audited) for image in file.images))
        except MachOError as error:
            return MachO(path, (), error.message)

    def _facts(self, path: str, image: Image, *, audited: bool) -> AuditedSlice:
        if len(image.dylibs) > _MAX_DYLIBS or len(image.rpaths) > _MAX_RPATHS:
            raise MachOError(f"{len(image.dylibs)} dependencies and {len(image.rpaths)} rpaths are too many")
        exports, imports = known_exports(image, self.memory), read_imports(image)
        contents = self._contents(image, audited=audited)
        return AuditedSlice(
            path=path,
            arch=image.arch,
            kind=image.kind,
            linked=image.filetype in _LINKED,
            two_level=bool(image.flags & HeaderFlag.TWOLEVEL),
            id=image.id,
            dylibs=image.dylibs,
            rpaths=image.rpaths,
            build=image.build_version,
            header_room=image.header_room,
            exports=exports,
            imports=imports,
            markers=frozenset(contents.markers),
            build_paths=contents.build_paths,
            signed=image.signature_range is not None,
            signature=contents.signature,
        )

    def _contents(self, image: Image, *, audited: bool) -> SymbolSummary:
        """Return the facts that need all bytes of an image; of a file that is not under audit, only the markers."""
        markers = sorted({name for runtime in self.parameters.runtimes for name in runtime.defines})
        prefixes = self.parameters.build_paths if audited else []
        verified = image.signature_range is not None and audited and self.verify_signatures
        if self.memory is None:
            return _look(image, markers, prefixes, verified=verified)
        key = contents_key(image, (markers, prefixes, verified))
        contents = known_contents(key, self.memory)
        if contents is None:
            contents = _look(image, markers, prefixes, verified=verified)
            remember_contents(key, self.memory, contents)
        return contents

    def restore(self, path: str, member: Member) -> None:
        """Give a file the permission bits and the quarantine mark of its archive, which unpacking drops."""
        entry = self.entries[path]
        mode = stat.S_IFMT(entry.mode) | stat.S_IMODE(member.mode or entry.mode)
        self.entries[path] = replace(entry, mode=mode, quarantined=entry.quarantined or member.quarantined)

    def add(self, path: str) -> None:
        """Add a file, folder or link to the audit; a Mach-O file is opened and read."""
        place = self.root / path
        with os_errors(place):
            mode = place.lstat().st_mode
            target = os.readlink(place) if stat.S_ISLNK(mode) else None
        self.entries[path] = AuditedFile(path, mode, target, is_quarantined(place))
        if not stat.S_ISREG(mode) or posixpath.basename(path).startswith("._"):
            return
        with os_errors(place):
            head = _head(place, len(_ARCHIVE_MAGIC))
        if head == _ARCHIVE_MAGIC:
            self.archives.append(path)
        elif has_macho_magic(head):
            macho = self._read(path, audited=True)
            if macho.error is not None and path.endswith(".a"):
                self.archives.append(path)  # A fat header over archives.
            else:
                self.machos[path] = macho


def scan(
    root: Path, parameters: Parameters, *, verify_signatures: bool = True, memory: Memory | None = None
) -> AuditedTree:
    """Read everything below a folder, links not followed.

    Raises
    ------
    FileError
        If a folder or file cannot be read.
    """
    tree = AuditedTree(root, parameters, verify_signatures=verify_signatures, memory=memory)
    for name in sorted(entry.path for entry in walk(root)):
        tree.add(name)
    return tree


def _head(path: Path, size: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(size)


def _look(image: Image, markers: list[str], prefixes: list[str], *, verified: bool) -> SymbolSummary:
    defined = defined_names(image, [name.encode() for name in markers])
    paths = _build_paths(image, prefixes) if prefixes else ()
    return SymbolSummary(tuple(sorted(defined)), paths, _verify(image) if verified else None)


def _verify(image: Image) -> str | None:
    try:
        verify_image(image)
    except SignatureError as error:
        return error.message
    return None


def _build_paths(image: Image, prefixes: list[str]) -> tuple[str, ...]:
    """Return the paths in the C strings of an image that start with one of the prefixes."""
    starts = b"|".join(re.escape(prefix.encode()) for prefix in prefixes)
    pattern = re.compile(rb"(?:(?<![\w./@}%-])|(?<=-[IL]))(?:" + starts + rb")[\w./+@%=~-]+")
    found: dict[bytes, None] = {}
    budget = image.size  # Sections that overlap each other must not multiply the work.
    for section in (section for segment in image.segments for section in segment.sections):
        if section.name != "__cstring" or section.zerofill or section.size > budget:
            continue
        budget -= section.size
        first = image.offset + section.offset
        for match in pattern.finditer(image.data, first, first + section.size):
            found.setdefault(match.group())
            if len(found) >= _MAX_BUILD_PATHS:
                break
    return tuple(name.decode("utf-8", "replace") for name in found)
