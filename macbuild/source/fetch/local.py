"""Say what a file or folder of the project contains now, which is what a build of it uses."""

from __future__ import annotations

import hashlib
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from macbuild.errors import FetchError
from macbuild.files import hash_file, os_errors
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.trees import folder_nodes, write_tar

__all__ = ["local_pin", "packed_name"]


def packed_name(folder: Path) -> str:
    """Return the name of the archive that a folder becomes when it is fetched."""
    return f"{folder.resolve().name}.tar"


def local_pin(path: Path) -> Pin | None:
    """Return name, size in bytes and sha256 of what `fetch` would make of a path, or None if it does not exist.

    Raises
    ------
    FetchError
        The path is, or the folder holds, something other than files, folders and symbolic links.
    FileError
        Something cannot be read.
    """
    with os_errors(path):
        if path.is_dir():
            sink = _Hashing()
            write_tar(folder_nodes(path), cast("BinaryIO", sink), lambda: None)
            return Pin(packed_name(path), sink.size, sink.sha256.hexdigest())
        if not path.exists():
            return None
        if not path.is_file():
            raise FetchError("is neither a file nor a folder", where=path)
    return Pin(path.name, *hash_file(path))


class _Hashing(RawIOBase):
    """A file that keeps only the size and the sha256 of what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # typeshed's name for all buffers is private
        self.sha256.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size
