"""Put artifacts into `dist/`: each file appears whole or not at all, and the lists match the files."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from macbuild.errors import FileError, IntegrityError
from macbuild.files import atomic_path, hash_file, os_errors, sync
from macbuild.package.manifest import FORMAT, ArtifactEntry, Manifest, checksum_name, encode, load_manifest

__all__ = ["CHECKSUMS", "MANIFEST", "check_writable", "identity", "publish", "published"]

CHECKSUMS = "SHA256SUMS"
MANIFEST = "manifest.json"
_HINT = "make the folder writable, or name another one with --dist"
# The names that `macbuild.files.atomic_path` gives to incomplete files; they contain the start of the final name.
_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")
# Errors of file systems that cannot lock a folder, such as NFS: flock(2). Files still appear whole there.
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP})


def publish(dist: Path, artifact: Path, sbom: str, entry: ArtifactEntry, stamp: Path) -> None:
    """Put an artifact, its checksum and its SBOM into a folder, and list it in SHA256SUMS and the manifest.

    Files that have the right content already are not written again. Entries of other artifacts stay if their files are
    there and whole. After an error all files are the old ones. If the process dies, each is the old or the new one, and
    publishing again completes the set and removes half-written files.

    Parameters
    ----------
    dist
        The folder; made if missing. While it changes it is locked against other runs.
    artifact
        The packed file, copied.
    sbom
        The text of its SBOM.
    entry
        Its row in the manifest.
    stamp
        A small file outside `dist` that tells `published` which file was verified.

    Raises
    ------
    IntegrityError
        The artifact or the SBOM is not what `entry` says.
    FileError, NoSpaceError
        The folder cannot be written, or its manifest is damaged.
    """
    if hashlib.sha256(sbom.encode()).hexdigest() != entry.sbom.sha256:
        raise IntegrityError("the SBOM is not the one in the manifest's entry", where=entry.sbom.file)
    check_writable(dist)
    with os_errors(dist, hint=_HINT):
        dist.mkdir(parents=True, exist_ok=True)
    with _locked(dist):
        manifest = load_manifest(dist / MANIFEST)
        _remove_leftovers(dist, entry)
        others = [other for other in manifest.artifacts if other.file != entry.file and _is_whole(dist, other)]
        entries = sorted([*others, entry], key=lambda item: item.file)
        # Files get their names when all are written, the last one first. So the first is the checksum: as long as it
        # differs from the manifest, the artifact counts as incomplete.
        with ExitStack() as files:
            _stage(files, dist / MANIFEST, encode(Manifest(version=FORMAT, artifacts=entries)))
            _stage(files, dist / CHECKSUMS, b"".join(_lines(entries)))
            _stage(files, dist / entry.sbom.file, sbom.encode())
            _stage_copy(files, artifact, dist / entry.file, entry)
            _stage(files, dist / checksum_name(entry.file), _checksum(entry.sha256, entry.file))
        _write_stamp(stamp, dist / entry.file, entry)


def check_writable(dist: Path) -> None:
    """Refuse a folder that cannot be written or made; a `FileError`."""
    place = dist.absolute()
    with os_errors(dist, hint=_HINT):
        nearest = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
        code = errno.ENOTDIR if not nearest.is_dir() else 0 if os.access(nearest, os.W_OK | os.X_OK) else errno.EACCES
        if code:
            raise OSError(code, os.strerror(code))


def published(dist: Path, entry: ArtifactEntry, stamp: Path) -> bool:
    """Return whether a folder holds exactly this artifact with everything that belongs to it, listed.

    The artifact itself is hashed only when it is not the file that `stamp` describes: same inode, size and times.

    Parameters
    ----------
    dist, entry, stamp
        As for `publish`. The stamp is renewed after hashing; if it cannot be written, the next call hashes again.
    """
    path = dist / entry.file
    try:
        listed = load_manifest(dist / MANIFEST).artifacts
        if entry not in listed or not _is_whole(dist, entry):
            return False
        lines = (dist / CHECKSUMS).read_bytes().splitlines(keepends=True)
        if not set(_lines([entry])) <= set(lines):
            return False
        if _read(stamp) == _identity(path, entry):
            return True
        if hash_file(path) != (entry.size, entry.sha256):
            return False
    except (OSError, FileError):
        return False
    with suppress(FileError):
        _write_stamp(stamp, path, entry)
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, on the folder itself, so that no lock file stays among the artifacts."""
    with os_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise FileError(f"cannot be locked ({error.strerror})", where=folder) from error
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(dist: Path, entry: ArtifactEntry) -> None:
    """Remove what a killed run left of the files to write now; the lock keeps other runs from writing them."""
    names = (entry.file, checksum_name(entry.file), entry.sbom.file, CHECKSUMS, MANIFEST)
    with os_errors(dist):
        for path in dist.iterdir():
            match = _PARTIAL.fullmatch(path.name)
            if match and any(name.startswith(match[1]) for name in names):
                path.unlink(missing_ok=True)


def _is_whole(dist: Path, entry: ArtifactEntry) -> bool:
    """Return, without reading the artifact, whether the files of an entry are there and belong together."""
    try:
        if (dist / entry.file).stat().st_size != entry.size:
            return False
        if (dist / checksum_name(entry.file)).read_bytes() != _checksum(entry.sha256, entry.file):
            return False
        return hash_file(dist / entry.sbom.file) == (entry.sbom.size, entry.sbom.sha256)
    except (OSError, FileError):
        return False


def _lines(entries: list[ArtifactEntry]) -> list[bytes]:
    pairs = [(entry.file, entry.sha256) for entry in entries]
    pairs += [(entry.sbom.file, entry.sbom.sha256) for entry in entries]
    return [_checksum(sha256, name) for name, sha256 in sorted(pairs)]


def _checksum(sha256: str, name: str) -> bytes:
    """Return a line in the format of sha256sum."""
    return f"{sha256}  {name}\n".encode()


def _stage_copy(files: ExitStack, source: Path, destination: Path, entry: ArtifactEntry) -> None:
    with os_errors(destination):
        same_size = destination.is_file() and destination.stat().st_size == entry.size
        if same_size and hash_file(destination)[1] == entry.sha256:
            return
        partial = files.enter_context(atomic_path(destination))
        shutil.copyfile(source, partial)
        sync(partial)
    if hash_file(partial) != (entry.size, entry.sha256):
        raise IntegrityError(f"is not the {entry.file} that was packed", where=source)


def _stage(files: ExitStack, path: Path, data: bytes) -> None:
    """Write a file beside its place, which it takes at the end of the stack."""
    with os_errors(path):
        if path.is_file() and path.read_bytes() == data:
            return
        partial = files.enter_context(atomic_path(path))
        partial.write_bytes(data)
        sync(partial)  # a full disk may show only here


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def identity(path: Path) -> list[int]:
    """Return numbers that change when a file is written or replaced; empty if the file is missing."""
    try:
        info = path.stat()
    except OSError:
        return []
    return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _identity(path: Path, entry: ArtifactEntry) -> bytes:
    return msgspec.json.encode([entry.sha256, *identity(path)])


def _write_stamp(stamp: Path, path: Path, entry: ArtifactEntry) -> None:
    with ExitStack() as files:
        _stage(files, stamp, _identity(path, entry))
