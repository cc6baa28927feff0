"""Write folders and git trees as tar archives whose bytes depend only on names, modes and contents."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import FetchError
from macbuild.files import walk

__all__ = ["SourceNode", "folder_nodes", "write_tar"]

_MOMENT = 315_532_800  # 1980-01-01: the same for all, because git and copies do not keep times


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A path with its mode (type bits of `stat` included), size in bytes, link target and a way to open it."""

    name: str
    mode: int
    size: int
    target: str
    open: Callable[[], BinaryIO]


def folder_nodes(folder: Path) -> Iterator[SourceNode]:
    """Yield what is in a folder, except `.git`, sorted by name.

    Raises
    ------
    FetchError
        There is something other than files, folders and symbolic links.
    """
    for entry in walk(folder, skip=(".git",)):
        path = folder / entry.path
        if entry.kind == "link":
            yield SourceNode(entry.path, stat.S_IFLNK | 0o755, 0, str(path.readlink()), io.BytesIO)
        elif entry.kind == "folder":
            yield SourceNode(entry.path, stat.S_IFDIR | 0o755, 0, "", io.BytesIO)
        elif entry.kind == "file":
            yield SourceNode(entry.path, entry.status.st_mode, entry.status.st_size, "", partial(_open, path))
        else:
            raise FetchError("neither a file nor a folder nor a symbolic link", where=path)


def write_tar(nodes: Iterator[SourceNode], file: BinaryIO, beat: Callable[[], None]) -> None:
    """Write nodes as a pax archive; only the executable bit of a mode is kept.

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


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, node: SourceNode) -> None:
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


def _open(path: Path) -> BinaryIO:
    return path.open("rb")
