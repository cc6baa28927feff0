"""Folders and git trees as tar archives whose bytes depend on names, modes and contents only."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import FetchError

__all__ = ["Node", "folder_nodes", "write_tar"]

_MOMENT = 315_532_800  # 1980-01-01: one time for all, because git and copies do not keep times


@dataclass(frozen=True, slots=True)
class Node:
    """A path with its mode (type bits of `stat` included), size in bytes, link target and a way to open it."""

    name: str
    mode: int
    size: int
    target: str
    open: Callable[[], BinaryIO]


def folder_nodes(folder: Path) -> Iterator[Node]:
    """Yield what is in a folder, except `.git`, sorted by name.

    Raises
    ------
    FetchError
        There is something else than files, folders and symbolic links.
    """
    return _nodes(folder, "")


def write_tar(nodes: Iterator[Node], file: BinaryIO, beat: Callable[[], None]) -> None:
    """Write nodes as a pax archive; of the modes only `executable` is kept.

    Raises
    ------
    FetchError
        A file became shorter while it was read.
    """
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for node in nodes:
            beat()
            entry = tarfile.TarInfo(node.name)
            entry.mtime = _MOMENT
            entry.mode = 0o755 if stat.S_ISDIR(node.mode) or node.mode & 0o100 else 0o644
            if stat.S_ISREG(node.mode):
                entry.size = node.size
                _add_file(tar, entry, node)
                continue
            entry.type = tarfile.DIRTYPE if stat.S_ISDIR(node.mode) else tarfile.SYMTYPE
            entry.linkname = node.target
            tar.addfile(entry)


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, node: Node) -> None:
    with node.open() as content:
        data = content.read(node.size + 1) if node.size < 1 << 20 else None
        if data is not None and len(data) != node.size:
            raise FetchError("the file changed while it was read", where=node.name)
        try:
            tar.addfile(entry, io.BytesIO(data) if data is not None else content)
        except OSError as error:
            if error.errno is None:
                raise FetchError("the file changed while it was read", where=node.name) from error
            raise


def _nodes(folder: Path, prefix: str) -> Iterator[Node]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    for entry in found:
        if entry.name == ".git":
            continue
        path = Path(entry.path)
        status = entry.stat(follow_symlinks=False)
        name = prefix + entry.name
        if stat.S_ISLNK(status.st_mode):
            yield Node(name, stat.S_IFLNK | 0o755, 0, str(path.readlink()), io.BytesIO)
        elif stat.S_ISDIR(status.st_mode):
            yield Node(name, status.st_mode, 0, "", io.BytesIO)
            yield from _nodes(path, f"{name}/")
        elif stat.S_ISREG(status.st_mode):
            yield Node(name, status.st_mode, status.st_size, "", partial(_open, path))
        else:
            raise FetchError("neither a file nor a folder nor a symbolic link", where=path)


def _open(path: Path) -> BinaryIO:
    return path.open("rb")
