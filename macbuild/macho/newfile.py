"""Write a Mach-O file as a new inode: a file that may have been executed is never written in place."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import NoSpaceError, StoreError

__all__ = ["copy_range", "new_file", "os_errors"]

_CHUNK = 1 << 22


@contextmanager
def os_errors(where: Path) -> Iterator[None]:
    """Turn what the operating system reports into a `StoreError`, or a `NoSpaceError` if the file system is full."""
    try:
        yield
    except OSError as error:
        kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
        raise kind(f"cannot be written: {error.strerror or error}", where=where) from error


@contextmanager
def new_file(target: Path, like: Path) -> Iterator[Path]:
    """Give an empty file beside `target`; when the block ends well, it is synced and takes the name of `target`.

    Parameters
    ----------
    target
        The name to take; if it is a link, the file that it leads to is replaced.
    like
        The file whose permissions the new one gets.

    Raises
    ------
    StoreError, NoSpaceError
        If it cannot be written; `target` stays what it was, as on every other error.
    """
    with os_errors(target):
        target = target.resolve()
        mode = stat.S_IMODE(like.stat().st_mode)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(descriptor)
        path = Path(name)
        try:
            yield path
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.chmod(mode)
            path.replace(target)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def copy_range(source: BinaryIO, target: BinaryIO, offset: int, size: int) -> None:
    """Copy `size` bytes of one file, from `offset` on, to the current position of another, piece by piece."""
    source.seek(offset)
    while size and (piece := source.read(min(_CHUNK, size))):
        target.write(piece)
        size -= len(piece)
