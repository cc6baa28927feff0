"""What is in a staged tree, in the order of an archive, with all that an archive of ours must not hold refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from macbuild.errors import ArchiveError
from macbuild.files import os_errors

__all__ = ["Entry", "walk"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder, file or link below a tree.

    `path` is relative, with slashes; `size` is in bytes and 0 for all but files; `target` is empty for all but links.
    """

    path: str
    kind: Literal["folder", "file", "link"]
    mode: int
    size: int = 0
    target: str = ""


def walk(tree: Path) -> list[Entry]:
    """Return everything below a folder, sorted by the bytes of the path, modes reduced to 0755 and 0644.

    Raises
    ------
    ArchiveError
        If there is a device, socket or pipe, a link that is absolute, broken or leads out of the tree, or a name that
        is not UTF-8.
    StoreError
        If something cannot be read.
    """
    with os_errors(tree):
        root = os.path.realpath(tree, strict=True)
        return sorted(_entries(root, ""), key=lambda entry: entry.path.encode())


def _entries(root: str, folder: str) -> Iterator[Entry]:
    with os.scandir(os.path.join(root, folder)) as found:  # noqa: PTH118 - there are ten thousands of them
        items = list(found)
    for item in items:
        path = f"{folder}/{item.name}" if folder else item.name
        info = item.stat(follow_symlinks=False)
        if not path.isprintable():
            raise ArchiveError("has a name that is not printable UTF-8", where=ascii(path))
        if stat.S_ISLNK(info.st_mode):
            yield Entry(path, "link", 0o777, target=_link_target(root, path))
        elif stat.S_ISDIR(info.st_mode):
            yield Entry(path, "folder", 0o755)
            yield from _entries(root, path)
        elif stat.S_ISREG(info.st_mode):
            yield Entry(path, "file", 0o755 if info.st_mode & stat.S_IXUSR else 0o644, info.st_size)
        else:
            raise ArchiveError("is neither a file, a folder nor a link", where=path)


def _link_target(root: str, path: str) -> str:
    link = Path(root, path)
    target = os.readlink(link)  # noqa: PTH115 - the text as it stands
    if target.startswith("/") or not target.isprintable():
        raise ArchiveError(f"is a link to {target!a}, which is not a relative path", where=path)
    end = os.path.realpath(link)
    if end != root and not end.startswith(root + os.sep):
        raise ArchiveError(f"is a link to {target!r}, which leads out of the tree", where=path)
    if not link.exists():
        raise ArchiveError(f"is a link to {target!r}, which does not exist", where=path)
    return target
