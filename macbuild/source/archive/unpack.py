"""Unpack untrusted archives: nothing leaves the destination or stays half-written, and hostile archives are refused."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import ArchiveError, FileError
from macbuild.events import BEAT, Meter, silent, throttled
from macbuild.files import copy_file, os_errors, remove_tree
from macbuild.source.archive.members import Limits, Member, MemberTree
from macbuild.source.archive.tars import TarReader, is_tar, stream_kind
from macbuild.source.archive.zips import ZipEntry, ZipReader, is_zip

__all__ = ["Limits", "unpack"]

_HEAD = 512
_FOLDER = 0o755
_EARLIEST = 315_532_800  # 1980-01-01, the first moment that a zip archive can name
_WORKERS = 4
_BIG = 1 << 20  # packed bytes
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def unpack(
    archive: Path,
    destination: Path,
    *,
    limits: Limits | None = None,
    progress: Meter = silent,
    select: Callable[[str], bool] | None = None,
    seen: Callable[[Member], None] | None = None,
) -> None:
    """Unpack a zip, wheel, tar, tar.gz, tar.xz or tar.bz2 file, recognised by content, into a new folder.

    Files keep their read and execute bits and their times, limited to the range from 1980 to now. Owner, group,
    set-user-id bits and write permission for others are ignored. A hard link becomes a copy.

    Parameters
    ----------
    archive
        The file.
    destination
        Folder that does not exist yet; it appears when all is unpacked.
    limits
        Guards against archives that are made to fill disk or memory.
    progress
        Called about ten times a second in the caller's thread with the bytes done and the total: unpacked bytes of a
        zip, archive bytes of a tar. What it raises ends the work and leaves nothing.
    select
        Called with the name (`a/b/c`) of each entry; entries for which it returns False are left out.
    seen
        Called with each entry that is unpacked, as the archive states it.

    Raises
    ------
    ArchiveError
        The archive is damaged, of an unknown kind, or hostile; it names the entry.
    NoSpaceError
        The disk is full.
    FileError
        The archive cannot be read, or the destination exists or cannot be written.
    """
    limits = limits or Limits()
    if destination.is_symlink() or destination.exists():
        raise FileError("the folder to unpack into already exists", where=destination, hint="remove it")
    staging = destination.with_name(f".{destination.name[:60]}.{secrets.token_hex(8)}.tmp")
    with os_errors(archive):
        file = archive.open("rb")
    with file, os_errors(destination):
        try:
            staging.mkdir(parents=True)
            _unpack_any(
                archive,
                file,
                _Writer(staging),
                limits=limits,
                progress=throttled(progress),
                choice=_Choice(select, seen),
            )
            staging.rename(destination)
        except BaseException:
            remove_tree(staging)
            raise


class _Writer:
    """Write the tree to disk; names are clean and their folders exist."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def folder(self, name: str) -> None:
        path = f"{self._root}/{name}"
        os.mkdir(path)
        os.chmod(path, _FOLDER)

    def file(self, member: Member, pieces: Iterable[bytes | memoryview], count: Callable[[int], None]) -> None:
        descriptor = os.open(f"{self._root}/{member.name}", _NEW_FILE, 0o600)
        try:
            for piece in pieces:
                left = memoryview(piece)
                while left:
                    left = left[os.write(descriptor, left) :]
                count(len(piece))
            os.fchmod(descriptor, member.mode & 0o755 | 0o600 if member.mode else 0o644)
            moment = min(max(member.mtime, _EARLIEST), int(time.time()))
            os.utime(descriptor, (moment, moment))
        finally:
            os.close(descriptor)

    def copy(self, member: Member) -> int:
        path = Path(self._root, member.name)
        copy_file(Path(self._root, member.target), path)
        return path.stat().st_size

    def symlink(self, member: Member) -> None:
        os.symlink(member.target, f"{self._root}/{member.name}")


@dataclass(frozen=True)
class _Choice:
    """Which entries are unpacked, and who is told of them."""

    select: Callable[[str], bool] | None
    seen: Callable[[Member], None] | None

    def takes(self, member: Member) -> bool:
        if self.select is not None and not self.select(member.name):
            return False
        if self.seen is not None:
            self.seen(member)
        return True


def _unpack_any(
    archive: Path,
    file: BinaryIO,
    writer: _Writer,
    *,
    limits: Limits,
    progress: Meter,
    choice: _Choice,
) -> None:
    head = file.read(_HEAD)
    file.seek(0)
    if is_zip(head):
        _unpack_zip(ZipReader(archive, file.fileno(), limits), writer, progress, choice)
    elif stream_kind(head) or is_tar(head):
        size = os.fstat(file.fileno()).st_size
        _unpack_tar(TarReader(archive, file, limits), writer, lambda: progress(min(file.tell(), size), size), choice)
    else:
        raise ArchiveError("neither a zip nor a tar archive", where=archive)


def _unpack_zip(reader: ZipReader, writer: _Writer, progress: Meter, choice: _Choice) -> None:
    tree, entries = reader.entries(choice.takes)
    for folder in tree.folders:
        writer.folder(folder)

    def write(entry: ZipEntry, count: Callable[[int], None]) -> None:
        writer.file(entry.member, reader.read(entry), count)

    _Crew(write).run(_shares([entry for entry in entries if entry.member.kind == "file"]), progress)
    for entry in entries:
        if entry.member.kind == "symlink":
            writer.symlink(entry.member)


def _unpack_tar(reader: TarReader, writer: _Writer, beat: Callable[[], None], choice: _Choice) -> None:
    tree = reader.tree
    made = 0
    links: list[Member] = []

    def count(size: int) -> None:
        del size
        beat()

    for member, pieces in reader.entries():
        beat()
        if not member.name or not choice.takes(member):
            continue
        tree.add(member)
        for folder in tree.folders[made:]:
            writer.folder(folder)
        made = len(tree.folders)
        if member.kind == "file":
            writer.file(member, pieces, count)
        elif member.kind == "symlink":
            links.append(member)
        elif member.kind == "hardlink":
            reader.budget.spend(writer.copy(replace(member, target=_file_before(tree, member))))
    tree.check_links()
    for member in links:
        writer.symlink(member)
    beat()


def _file_before(tree: MemberTree, member: Member) -> str:
    target = tree.clean(member.target)
    if not tree.is_file(target):
        raise tree.error(member.name, f"hard link to {member.target[:200]!r}, which is not an earlier file")
    return target


class _Crew:
    """Run a thread for each share of the entries; the caller's thread waits and raises the first failure."""

    def __init__(self, work: Callable[[ZipEntry, Callable[[int], None]], None]) -> None:
        self._work = work
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._counts: list[int] = []

    def run(self, shares: list[list[ZipEntry]], progress: Meter) -> None:
        total = sum(entry.member.size for share in shares for entry in share)
        self._counts = [0] * len(shares)
        threads = [
            threading.Thread(target=self._run_share, args=(slot, share), daemon=True)
            for slot, share in enumerate(shares)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(BEAT)
                    progress(sum(self._counts), total)
        finally:
            self._stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._failures:
            raise self._failures[0]
        progress(total, total)

    def _run_share(self, slot: int, share: list[ZipEntry]) -> None:
        def count(size: int) -> None:
            self._counts[slot] += size
            if self._stop.is_set():
                raise _StoppedError

        try:
            for entry in share:
                self._work(entry, count)
        except BaseException as error:  # it is raised again in the caller's thread
            self._failures.append(error)
            self._stop.set()


def _shares(files: list[ZipEntry]) -> list[list[ZipEntry]]:
    """Share entries among threads: big ones evenly, small ones to one thread, because they need Python's lock."""
    shares: list[list[ZipEntry]] = [[] for _ in range(min(_WORKERS, os.cpu_count() or 1))]
    sizes = [0] * len(shares)
    for entry in sorted(files, key=lambda entry: -entry.packed):
        slot = sizes.index(min(sizes)) if entry.packed > _BIG else -1
        shares[slot].append(entry)
        sizes[slot] += entry.packed
    return shares


class _StoppedError(Exception):
    """End a thread after another one failed."""
