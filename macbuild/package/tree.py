"""List a staged tree in the order of an archive, and refuse everything that an artifact must not hold."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from macbuild.errors import ArchiveError
from macbuild.files import folded, os_errors, walk

__all__ = ["TreeEntry", "tree_entries"]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A folder, file or link below a tree.

    `path` is relative, with slashes; `size` is in bytes and 0 for all but files; `target` is empty for all but links.
    """

    path: str
    kind: Literal["folder", "file", "link"]
    mode: int
    size: int = 0
    target: str = ""


def tree_entries(tree: Path) -> list[TreeEntry]:
    """Return everything below a folder, sorted by the bytes of the path, modes reduced to 0755 and 0644.

    Raises
    ------
    ArchiveError
        There is a device, socket or pipe, a link that is absolute, broken or leads out of the tree, a name that is
        not UTF-8, or two names that differ in case only.
    FileError
        Something cannot be read.
    """
    with os_errors(tree):
        root = os.path.realpath(tree, strict=True)
        found = []
        for entry in walk(Path(root)):
            path = entry.path
            if not path.isprintable():
                raise ArchiveError("has a name that is not printable UTF-8", where=ascii(path))
            if entry.kind == "folder":
                found.append(TreeEntry(path, "folder", 0o755))
            elif entry.kind == "file":
                mode = 0o755 if entry.status.st_mode & stat.S_IXUSR else 0o644
                found.append(TreeEntry(path, "file", mode, entry.status.st_size))
            elif entry.kind == "link":
                found.append(TreeEntry(path, "link", 0o777, target=_link_target(root, path)))
            else:
                raise ArchiveError("is neither a file, a folder nor a link", where=path)
    found.sort(key=lambda entry: entry.path.encode())
    _check_case(found)
    return found


def _check_case(entries: list[TreeEntry]) -> None:
    """Refuse two names that are one on macOS's default file system."""
    known: dict[str, str] = {}
    for entry in entries:
        other = known.setdefault(folded(entry.path), entry.path)
        if other != entry.path:
            raise ArchiveError(f"is the same file as {other} on macOS, where case does not count", where=entry.path)


def _link_target(root: str, path: str) -> str:
    link = Path(root, path)
    target = os.readlink(link)
    if target.startswith("/") or not target.isprintable():
        raise ArchiveError(f"is a link to {target!a}, which is not a relative path", where=path)
    end = os.path.realpath(link)
    if end != root and not end.startswith(root + os.sep):
        raise ArchiveError(f"is a link to {target!r}, which leads out of the tree", where=path)
    if not link.exists():
        raise ArchiveError(f"is a link to {target!r}, which does not exist", where=path)
    return target
