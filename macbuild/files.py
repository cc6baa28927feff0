"""Files that appear whole or not at all, copies that share blocks, and errors of the system in our words."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import MacbuildError, NoSpaceError, StoreError

__all__ = [
    "atomic_path",
    "copy_file",
    "copy_range",
    "hash_file",
    "new_file",
    "os_errors",
    "remove_tree",
    "sync",
    "translate_oserror",
]

_CHUNK = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FICLONE = 0x40049409  # ioctl_ficlone(2): share the blocks of another file


def translate_oserror(error: OSError, where: object) -> MacbuildError:
    """Say in our words why the file system refused.

    Parameters
    ----------
    error
        What the system raised.
    where
        The file or folder that the caller was busy with.

    Returns
    -------
    MacbuildError
        `NoSpaceError` for a full disk, a used-up quota or a file size limit, `StoreError` for everything else. The
        caller raises it.
    """
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return NoSpaceError(
            f"no space left to write ({reason})",
            where=where,
            hint="free some space ('macbuild cache prune' removes old results) or set MACBUILD_CACHE_DIR",
        )
    hint = None
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        hint = "check the owner and the permissions, or set MACBUILD_CACHE_DIR to a folder that can be written"
    return StoreError(f"the file system refused ({reason})", where=where, hint=hint)


@contextlib.contextmanager
def os_errors(where: object) -> Iterator[None]:
    """Turn each `OSError` of the block into a `MacbuildError` that names `where`."""
    try:
        yield
    except OSError as error:
        raise translate_oserror(error, where) from error


def sync(path: Path) -> None:
    """Bring a file or the entries of a folder to the disk, so that a crash after it does not lose them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_path(destination: Path) -> Iterator[Path]:
    """Yield a fresh private path beside `destination`; what was written there takes its name when the block ends well.

    The file is brought to the disk before the rename. When the block fails it is removed and `destination` keeps what
    it was. Missing parent folders are made.

    Raises
    ------
    NoSpaceError
        The disk is full.
    StoreError
        The folder cannot be written.
    """
    with os_errors(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        temporary = destination.with_name(f".{destination.name[:60]}.{secrets.token_hex(8)}.tmp")
        try:
            temporary.touch(exist_ok=False)
            yield temporary
            sync(temporary)
            temporary.replace(destination)
            sync(destination.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_file(target: Path, like: Path) -> Iterator[Path]:
    """Yield a fresh private path as `atomic_path` does, for a file with the permissions of another one.

    Parameters
    ----------
    target
        The name to take; if it is a link, the file that it leads to is replaced.
    like
        The file whose permissions the new one gets.
    """
    with os_errors(target):
        mode = stat.S_IMODE(like.stat().st_mode)
        target = target.resolve()
        if not target.parent.is_dir():
            raise StoreError("cannot be written: there is no such folder", where=target)
        with atomic_path(target) as path:
            yield path
            path.chmod(mode)


def copy_range(source: BinaryIO, target: BinaryIO, offset: int, size: int) -> None:
    """Copy `size` bytes of one file, from `offset` on, to the current position of another, piece by piece."""
    source.seek(offset)
    while size and (piece := source.read(min(_CHUNK, size))):
        target.write(piece)
        size -= len(piece)


def copy_file(source: Path, destination: Path) -> None:
    """Copy a file with its mode and time to a new inode, sharing blocks when the file system can.

    An existing `destination` is replaced at once, never written in place.

    Raises
    ------
    NoSpaceError
        The disk is full.
    StoreError
        One of the two cannot be read or written.
    """
    with atomic_path(destination) as temporary:
        if not _share_blocks(source, temporary):
            shutil.copyfile(source, temporary)
        shutil.copystat(source, temporary)


def hash_file(path: Path, progress: Callable[[int, int | None], None] | None = None) -> tuple[int, str]:
    """Return the size in bytes and the sha256 in hex of a file.

    Parameters
    ----------
    path
        A regular file.
    progress
        Called with the bytes done and the size, after each part.

    Raises
    ------
    StoreError
        The file cannot be read.
    """
    digest = hashlib.sha256()
    done = 0
    with os_errors(path), path.open("rb", buffering=0) as reader:
        total = os.fstat(reader.fileno()).st_size
        buffer = memoryview(bytearray(_CHUNK))
        while count := reader.readinto(buffer):
            digest.update(buffer[:count])
            done += count
            if progress is not None:
                progress(done, total)
    return done, digest.hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder with everything in it, also folders without write permission; gone is fine.

    Raises
    ------
    StoreError
        Something in it cannot be removed.
    """
    with os_errors(path):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            path.unlink(missing_ok=True)
            return
        try:
            shutil.rmtree(path)
        except PermissionError:
            _open_folders(path)
            shutil.rmtree(path)
        except FileNotFoundError:
            shutil.rmtree(path, ignore_errors=True)


def _share_blocks(source: Path, destination: Path) -> bool:
    if not hasattr(os, "copy_file_range"):
        return False
    import fcntl  # noqa: PLC0415  # POSIX systems only

    with source.open("rb") as reader, destination.open("r+b") as writer:
        with contextlib.suppress(OSError):
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
            return True
        with contextlib.suppress(OSError):
            while os.copy_file_range(reader.fileno(), writer.fileno(), 1 << 30):
                pass
            return os.fstat(reader.fileno()).st_size == os.fstat(writer.fileno()).st_size
    return False


def _open_folders(path: Path) -> None:
    path.chmod(0o700)
    for folder, names, _ in os.walk(path):
        for name in names:
            child = Path(folder, name)
            if not child.is_symlink():
                child.chmod(0o700)
