"""Write files whole or not at all, copy and walk trees, and turn errors of the system into macbuild's own."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shlex
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from macbuild.errors import FileError, NoSpaceError
from macbuild.events import Meter, silent

__all__ = [
    "WalkEntry",
    "atomic_path",
    "copy_contents",
    "copy_file",
    "copy_range",
    "files_below",
    "folded",
    "hash_file",
    "link_or_copy",
    "mirror",
    "new_file",
    "os_errors",
    "remove_tree",
    "sync",
    "translate_oserror",
    "tree_size",
    "walk",
]

_CHUNK = 1 << 20
_PART = 1 << 24
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FICLONE = 0x40049409  # ioctl_ficlone(2): share the blocks of another file

Kind: TypeAlias = Literal["folder", "file", "link", "other"]

_ACCESS = "give yourself permission (chmod, chown), or use another path"
_IN_THE_WAY = "a part of the path is a file: remove it, or use another path"
_HINTS = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "use another path, on a file system that can be written",
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: "remove the folder of that name, or use another path",
}


def translate_oserror(error: OSError, where: object, hint: str | None = None) -> FileError:
    """Turn an error of the file system into one of macbuild's, which the caller raises.

    Parameters
    ----------
    error
        What the system raised.
    where
        The file or folder that the caller worked on.
    hint
        What to do when the path cannot be used, if the caller knows better than to use another path.

    Returns
    -------
    FileError
        `NoSpaceError` for a full disk, an exhausted quota or a file size limit.
    """
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return NoSpaceError(
            f"no space left to write ({reason})", where=where, hint="free some space there, or use another disk"
        )
    known = _HINTS.get(error.errno or 0)
    return FileError(f"the file system refused ({reason})", where=where, hint=hint if known and hint else known)


@contextlib.contextmanager
def os_errors(where: object, hint: str | None = None) -> Iterator[None]:
    """Turn each `OSError` of the block into a `FileError` that names `where`; the hint is as in `translate_oserror`."""
    try:
        yield
    except OSError as error:
        raise translate_oserror(error, where, hint) from error


@dataclass(slots=True, eq=False)
class WalkEntry:
    """Something below a folder: its kind, links not followed, and its path relative to the folder, with slashes."""

    path: str
    kind: Kind
    _item: os.DirEntry[str]

    @property
    def status(self) -> os.stat_result:
        """The status of the thing itself, as `lstat` returns it, read when first asked for."""
        try:
            return self._item.stat(follow_symlinks=False)
        except OSError as error:
            raise translate_oserror(error, self._item.path) from error


def walk(root: Path, *, skip: Collection[str] = (), changing: bool = False) -> Iterator[WalkEntry]:
    """Yield everything below a folder, links not followed: each folder before its contents, names sorted by bytes.

    A folder is read after it was yielded, so the caller may change its permissions first.

    Parameters
    ----------
    root
        The folder; it may be a link to one.
    skip
        Names that are left out wherever they are, folders with everything in them.
    changing
        Leave out folders that cannot be read, because other programs add and remove files at the same time.

    Raises
    ------
    FileError
        A folder cannot be read.
    """
    waiting = _listed(str(root), "", skip, changing=changing)
    while waiting:
        entry, place = waiting.pop()
        yield entry
        if entry.kind == "folder":
            waiting += _listed(place, f"{entry.path}/", skip, changing=changing)


def _listed(folder: str, prefix: str, skip: Collection[str], *, changing: bool) -> list[tuple[WalkEntry, str]]:
    """Return the entries of a folder, the last one first, each with the path to read it by."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda item: item.name.encode("utf-8", "surrogateescape"), reverse=True)
        return [
            (WalkEntry(prefix + item.name, _kind(item), item), item.path) for item in found if item.name not in skip
        ]
    except OSError as error:
        if changing:
            return []
        raise translate_oserror(error, folder) from error


def _kind(item: os.DirEntry[str]) -> Kind:
    if item.is_symlink():
        return "link"
    if item.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if item.is_file(follow_symlinks=False) else "other"


def folded(name: str) -> str:
    """Return a name as macOS's default file system compares it: without case, and with one spelling of each accent."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def files_below(root: Path) -> Iterator[Path]:
    """Yield all files and symbolic links below a folder, in the order of `walk`."""
    return (root / entry.path for entry in walk(root) if entry.kind in {"file", "link"})


def tree_size(root: Path) -> int:
    """Return the sum of the sizes of the files below a folder, in bytes; the folder may change meanwhile or be gone."""
    total = 0
    for entry in walk(root, changing=True):
        if entry.kind == "file":
            with contextlib.suppress(FileError):
                total += entry.status.st_size
    return total


def sync(path: Path) -> None:
    """Flush a file or the entries of a folder to the disk, so that a later crash does not lose them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_path(destination: Path) -> Iterator[Path]:
    """Yield a new private path beside `destination`, which takes its name when the block ends without an error.

    The file is flushed to the disk before the rename. If the block fails, it is removed and `destination` stays as it
    was. Missing parent folders are created.

    Raises
    ------
    NoSpaceError
        The disk is full.
    FileError
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
    """Yield a new private path as `atomic_path` does, for a file with the permissions of another one.

    Parameters
    ----------
    target
        The final path; if it is a link, the file that it points to is replaced.
    like
        The file whose permissions the new one gets.
    """
    with os_errors(target):
        mode = stat.S_IMODE(like.stat().st_mode)
        target = target.resolve()
        if not next(folder for folder in target.parents if folder.exists()).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not target.parent.exists():
            hint = f"mkdir -p {shlex.quote(str(target.parent))}"
            raise FileError("cannot be written: its folder does not exist", where=target, hint=hint)
        with atomic_path(target) as path:
            yield path
            path.chmod(mode)


def copy_range(source: BinaryIO, target: BinaryIO, offset: int, size: int) -> None:
    """Copy `size` bytes of one file, from `offset` on, to the current position of another."""
    source.seek(offset)
    while size and (piece := source.read(min(_CHUNK, size))):
        target.write(piece)
        size -= len(piece)


def copy_file(source: Path, destination: Path) -> None:
    """Copy a file with its mode and time to a new inode, sharing blocks when the file system can.

    An existing `destination` is replaced in one step, never written in place.

    Raises
    ------
    NoSpaceError
        The disk is full.
    FileError
        One of the two cannot be read or written.
    """
    with atomic_path(destination) as temporary:
        copy_contents(source, temporary)
        shutil.copystat(source, temporary)


def copy_contents(source: Path, destination: Path) -> None:
    """Copy the bytes of a file into one that exists, sharing blocks when the file system can."""
    if not _share_blocks(source, destination):
        shutil.copyfile(source, destination)


def hash_file(path: Path, progress: Meter = silent) -> tuple[int, str]:
    """Return the size in bytes and the sha256 in hex of a file.

    Parameters
    ----------
    path
        A regular file.
    progress
        Called with the bytes done and the size, after each part.

    Raises
    ------
    FileError
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
            progress(done, total)
    return done, digest.hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder with everything in it, even without write permission; it may be missing.

    Raises
    ------
    FileError
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
    import fcntl

    with source.open("rb") as reader, destination.open("r+b") as writer:
        with contextlib.suppress(OSError):
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
            return True
        with contextlib.suppress(OSError):
            at = 0
            while count := os.copy_file_range(reader.fileno(), writer.fileno(), _PART):
                # Linux starts to write these bytes to the disk now, so that a later fsync has little to wait for.
                os.posix_fadvise(writer.fileno(), at, count, os.POSIX_FADV_DONTNEED)
                at += count
            return os.fstat(reader.fileno()).st_size == os.fstat(writer.fileno()).st_size
    return False


def _open_folders(path: Path) -> None:
    path.chmod(0o700)
    for entry in walk(path):
        if entry.kind == "folder":
            (path / entry.path).chmod(0o700)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file of the store a second name, or copy it where the file system cannot; links are copied as links."""
    with os_errors(target):
        if source.is_symlink():
            target.symlink_to(source.readlink())
            return
        try:
            os.link(source, target)
        except OSError:
            copy_file(source, target)


def mirror(source: Path, folder: Path) -> None:
    """Make a folder equal to a stage. Files that are equal already keep their times, others are new."""
    wanted = [entry.path for entry in walk(source) if entry.kind in {"file", "link"}]
    with os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        present = list(walk(folder))
        for name in {entry.path for entry in present if entry.kind != "folder"}.difference(wanted):
            (folder / name).unlink()
        for entry in reversed(present):
            if entry.kind == "folder" and not os.listdir(place := folder / entry.path):
                place.rmdir()
        for name in wanted:
            path, target = source / name, folder / name
            if path.is_symlink() or target.is_symlink() or not _same(path, target):
                target.unlink(missing_ok=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_symlink():
                    target.symlink_to(path.readlink())
                else:
                    shutil.copyfile(path, target)
                    target.chmod(stat.S_IMODE(path.stat().st_mode))


def _same(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_mode == other.stat().st_mode and path.read_bytes() == other.read_bytes()
    except OSError:
        return False
