"""Check the names, links and totals of an archive's entries, in one place for every kind of archive."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zlib_ng import zlib_ng

from macbuild.errors import ArchiveError
from macbuild.files import folded

__all__ = ["Budget", "InflateError", "Limits", "Member", "MemberTree"]

InflateError: type[Exception] = zlib_ng.error  # type: ignore[assignment]  # its stub calls the class an instance
_MAX_LINKS = 40  # As many as Linux follows in one path.
_MAX_STEPS = 1_000_000  # Parts of paths that all links of an archive may lead through.


@dataclass(frozen=True, slots=True)
class Limits:
    """Limit how much an archive may contain.

    Parameters
    ----------
    files
        Entries of all kinds.
    total
        Bytes that all entries unpack to.
    ratio, ratio_floor
        Unpacked bytes per archive byte, checked once `ratio_floor` bytes are unpacked.
    depth, path, name
        Folders in a path, bytes (UTF-8) in a path, bytes in one part of it. APFS stores at most 255 in a part.
    """

    files: int = 200_000
    total: int = 8 << 30
    ratio: int = 100
    ratio_floor: int = 64 << 20
    depth: int = 64
    path: int = 1000
    name: int = 255


@dataclass(frozen=True, slots=True)
class Member:
    """An entry: clean `name`, size in bytes, mode bits, seconds since 1970, and the target of a link.

    `quarantined` says that the archive carries macOS's mark of a downloaded file.
    """

    name: str
    kind: Literal["file", "folder", "symlink", "hardlink"]
    size: int
    mode: int
    mtime: int
    target: str = ""
    quarantined: bool = False


class Budget:
    """Count the entries and bytes that come out of an archive, and stop at the limits.

    Parameters
    ----------
    archive
        For messages, and for its size.
    limits
        How much the archive may contain.
    """

    def __init__(self, archive: Path, limits: Limits) -> None:
        self._archive = archive
        self._limits = limits
        self._size = max(archive.stat().st_size, 1)
        self._entries = 0
        self._bytes = 0

    def entry(self) -> None:
        """Count one entry."""
        self._entries += 1
        if self._entries > self._limits.files:
            raise ArchiveError(f"more than {self._limits.files} entries", where=self._archive)

    def spend(self, size: int) -> None:
        """Count unpacked bytes."""
        self._bytes += size
        if self._bytes > self._limits.total:
            raise ArchiveError(f"unpacks to more than {self._limits.total} bytes", where=self._archive)
        if self._bytes > self._limits.ratio_floor and self._bytes > self._limits.ratio * self._size:
            raise ArchiveError(f"unpacks to more than {self._limits.ratio} times its size", where=self._archive)


class MemberTree:
    """Collect entries as a tree on a file system that ignores case and Unicode normalisation, as macOS does.

    Parameters
    ----------
    archive
        For messages.
    limits
        Of names and depth.

    Attributes
    ----------
    folders
        All folders, each after its parent.
    """

    def __init__(self, archive: Path, limits: Limits) -> None:
        self._archive = archive
        self._limits = limits
        self._nodes: dict[str, tuple[str, str]] = {}  # folded path: spelling, kind
        self._folders: set[str] = set()
        self.folders: list[str] = []
        self._links: dict[str, str] = {}  # folded path: target
        self._steps = 0

    def error(self, name: str, reason: str) -> ArchiveError:
        """Return the error that names the archive and the entry."""
        return ArchiveError(f"entry {name[:200]!r}: {reason}", where=self._archive)

    def clean(self, name: str) -> str:
        """Return an entry's name without a leading `./` and a trailing `/`; empty for the top folder.

        Raises
        ------
        ArchiveError
            The name leads outside, cannot be stored on a Mac, or means different files on different systems.
        """
        bare = name
        while bare.startswith("./"):
            bare = bare[2:]
        bare = bare.removesuffix("/")
        if bare in {"", "."} and name.startswith("."):
            return ""
        if not bare or bare.startswith("/"):
            raise self.error(name, "the name is empty or absolute")
        if "\\" in bare or (bare[1:2] == ":" and bare[0].isalpha()):
            raise self.error(name, "the name has a backslash or a drive letter")
        if not bare.isprintable() and any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in bare):
            raise self.error(name, "the name has control characters or is not UTF-8")
        parts = bare.split("/")
        if ".." in parts:
            raise self.error(name, "the name leads outside with '..'")
        if "" in parts or "." in parts:
            raise self.error(name, "the name has an empty part or '.'")
        limits = self._limits
        if len(parts) > limits.depth or len(bare.encode()) > limits.path:
            raise self.error(name, f"the path is longer than {limits.path} bytes or deeper than {limits.depth} folders")
        if max(len(part.encode()) for part in parts) > limits.name:
            raise self.error(name, f"a part of the name is longer than {limits.name} bytes")
        return bare

    def add(self, member: Member) -> None:
        """Add an entry whose name is clean.

        Raises
        ------
        ArchiveError
            It exists already, or conflicts with an earlier entry.
        """
        parent = member.name.rpartition("/")[0]
        if parent and parent not in self._folders:
            self._add_folders(parent, member.name)
        if member.kind == "folder":
            if member.name not in self._folders:
                self._add_folders(member.name, member.name)
            return
        key = folded(member.name)
        if key in self._nodes:
            spelling, kind = self._nodes[key]
            raise self.error(member.name, f"the same file as the earlier {kind} {spelling!r} (case is ignored)")
        self._nodes[key] = member.name, member.kind
        self._check_count()
        if member.kind == "symlink":
            self._links[key] = self._link_target(member)

    def is_file(self, name: str) -> bool:
        """Return whether a regular file of exactly this name was added."""
        return self._nodes.get(folded(name)) == (name, "file")

    def check_links(self) -> None:
        """Follow each symbolic link through the whole tree.

        Raises
        ------
        ArchiveError
            One leads outside, forms a loop, or goes through a file.
        """
        for key in self._links:
            self._follow(key)

    def _add_folders(self, path: str, entry: str) -> None:
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            folder = "/".join(parts[:count])
            if folder in self._folders:
                continue
            spelling, kind = self._nodes.setdefault(folded(folder), (folder, "folder"))
            if kind != "folder":
                raise self.error(entry, f"needs the folder {folder!r}, but there is the {kind} {spelling!r}")
            if spelling != folder:
                raise self.error(entry, f"needs the folder {folder!r}, but there is {spelling!r} (case is ignored)")
            self._folders.add(folder)
            self.folders.append(folder)
            self._check_count()

    def _check_count(self) -> None:
        if len(self._nodes) > self._limits.files:
            raise ArchiveError(f"more than {self._limits.files} files and folders", where=self._archive)

    def _link_target(self, member: Member) -> str:
        target = member.target
        if not target or target.startswith("/") or "\\" in target or len(target.encode("utf-8", "replace")) > 1000:
            raise self.error(member.name, f"symbolic link to {target[:200]!r}, which is empty, absolute or too long")
        if any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in target):
            raise self.error(member.name, "symbolic link with control characters in its target")
        return target

    def _follow(self, key: str) -> None:
        name = self._nodes[key][0]
        here = key.split("/")[:-1]
        rest = folded(self._links[key]).split("/")[::-1]
        followed = 0
        while rest:
            part = rest.pop()
            self._steps += 1
            if self._steps > _MAX_STEPS or len(here) > self._limits.depth:
                raise self.error(name, "symbolic links that lead through too many folders")
            if part in {"", "."}:
                continue
            if part == "..":
                if not here:
                    raise self.error(name, f"symbolic link to {self._links[key]!r}, which leads outside")
                here.pop()
                continue
            here.append(part)
            path = "/".join(here)
            if path in self._links:
                followed += 1
                if followed > _MAX_LINKS:
                    raise self.error(name, "symbolic link that forms a loop")
                here.pop()
                rest.extend(folded(self._links[path]).split("/")[::-1])
            elif rest and self._nodes.get(path, ("", "folder"))[1] != "folder":
                raise self.error(name, f"symbolic link to {self._links[key]!r}, which goes through a file")
