"""Write a staged tree as a tar.gz whose bytes depend on the tree alone, and check one against the tree's records.

Headers are written here, in the POSIX format (IEEE 1003.1, pax: "ustar Interchange Format" and "pax Header Block"),
because the content that Python's `tarfile` leaves in unused fields differs between its versions.
"""

from __future__ import annotations

import hashlib
import struct
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from macbuild.errors import IntegrityError
from macbuild.events import Meter, silent
from macbuild.files import atomic_path, hash_file, os_errors
from macbuild.package.blocks import BlockCache, GzipSegment
from macbuild.package.gunzip import GzipReader
from macbuild.package.gzip import IDENTITY, GzipWriter, gzip_stream
from macbuild.package.manifest import FileRecord, Mode
from macbuild.package.tree import TreeEntry, tree_entries

__all__ = ["LARGE", "block_cache", "pack", "pack_verified", "verify_tarball"]

# Files of at least this many bytes are segments of the stream, which may come from a cache.
LARGE = 4 << 20

_BLOCK = 512
_RECORD = 20 * _BLOCK
_CHUNK = 1 << 20
# The fields in order: name, mode, user, group, size, time, checksum, type, link, magic, version, names of user and
# group, two device numbers, prefix, padding.
_USTAR = struct.Struct("100s 8s 8s 8s 12s 12s 8s c 100s 6s 2s 32s 32s 8s 8s 155s 12x")
_MODES: dict[int, Mode] = {0o644: "0644", 0o755: "0755"}
_TYPES = {"file": b"0", "link": b"2", "folder": b"5"}


def block_cache(folder: Path) -> BlockCache:
    """Return the cache for `pack` in a folder of the store."""
    return BlockCache(folder, IDENTITY)


def pack(
    tree: Path,
    output: Path,
    *,
    top: str,
    epoch: int,
    jobs: int,
    records: Mapping[str, FileRecord] | None = None,
    cache: BlockCache | None = None,
    progress: Meter = silent,
) -> list[GzipSegment]:
    """Write everything below a folder into a tar.gz, which appears whole or not at all.

    Entries are sorted by the bytes of their path and belong to user and group 0; modes are 0755 or 0644. Links stay
    links, hard links become files, extended attributes are left out. `jobs` and `cache` do not change the bytes.

    Parameters
    ----------
    tree, output
        The folder, whose own name does not matter, and the file to write.
    top
        Name of the one folder that everything lies in.
    epoch
        The time of all entries, in seconds since 1970.
    jobs
        Threads that compress. The result does not depend on it.
    records
        The records of the tree by path, if they are known; files without a record are hashed when necessary.
    cache
        Compressed forms of large files that were packed before.
    progress
        Called with the bytes packed and their sum.

    Returns
    -------
    list[GzipSegment]
        Where the large files are, for `verify_tarball` and `BlockCache.keep`.

    Raises
    ------
    ArchiveError
        The tree holds something that an artifact must not hold; see `macbuild.package.tree.tree_entries`.
    IntegrityError
        A file changed while it was packed.
    FileError, NoSpaceError
        Something cannot be read or written.
    """
    entries = tree_entries(tree)
    total = sum(entry.size for entry in entries)
    done = 0
    with atomic_path(output) as partial, partial.open("wb") as file, gzip_stream(file, jobs) as stream:
        stream.write(_headers(top, TreeEntry("", "folder", 0o755), epoch))
        for entry in entries:
            stream.write(_headers(f"{top}/{entry.path}", entry, epoch))
            for count in _written(tree, entry, (records or {}).get(entry.path), stream, cache):
                done += count
                progress(done, total)
        stream.write(bytes(2 * _BLOCK))
        stream.write(bytes(-stream.size % _RECORD))
    return stream.segments


def _written(
    tree: Path, entry: TreeEntry, record: FileRecord | None, stream: GzipWriter, cache: BlockCache | None
) -> Iterator[int]:
    """Put a file's bytes into the stream, filled up to whole blocks; yield the length of each part."""
    if entry.size >= LARGE:
        yield from _large(tree, entry, _sha256(tree, entry, record), stream, cache)
    else:
        yield from _contents(tree, entry, stream)
    stream.write(bytes(-entry.size % _BLOCK))


def _sha256(tree: Path, entry: TreeEntry, record: FileRecord | None) -> str:
    """Return the hash of a file from its record, or else by reading it."""
    size, sha256 = hash_file(tree / entry.path) if record is None else (record.size, record.sha256)
    if size != entry.size or sha256 is None:
        raise _changed(tree, entry)
    return sha256


def _large(tree: Path, entry: TreeEntry, sha256: str, stream: GzipWriter, cache: BlockCache | None) -> Iterator[int]:
    """Put a large file into the stream as a segment, from the cache if it is there; yield the length of each part."""
    with cache.open(sha256) if cache is not None else nullcontext() as found:
        if found is not None and found[0].size == entry.size:
            stream.paste(sha256, *found)
            yield entry.size
            return
    with stream.segment(sha256):
        yield from _contents(tree, entry, stream)


def _contents(tree: Path, entry: TreeEntry, stream: GzipWriter) -> Iterator[int]:
    """Put a file's bytes into the stream; yield the length of each part."""
    if entry.kind != "file":
        return
    left = entry.size
    with os_errors(tree / entry.path), (tree / entry.path).open("rb", buffering=0) as reader:
        while left and (count := stream.fill(reader.readinto, left)):
            left -= count
            yield count
        if left or reader.read(1):
            raise _changed(tree, entry)


def _changed(tree: Path, entry: TreeEntry) -> IntegrityError:
    return IntegrityError("changed while it was packed", where=tree / entry.path, hint="run again")


def _headers(path: str, entry: TreeEntry, epoch: int) -> bytes:
    """Return the header of an entry, after a pax header if the path, link or size does not fit."""
    name = path + "/" * (entry.kind == "folder")
    prefix, short = _split(name)
    extended = {}
    if short is None:
        extended["path"] = name
    if len(entry.target) > 100 or not entry.target.isascii():
        extended["linkpath"] = entry.target
    if entry.size >= 8**11:
        extended["size"] = str(entry.size)
    out = b""
    if extended:
        pax = b"".join(_pax_record(key, value) for key, value in sorted(extended.items()))
        header = _ustar(TreeEntry("././@PaxHeader", "file", 0o644, len(pax)), b"x", "", epoch)
        out = header + pax + bytes(-len(pax) % _BLOCK)
    size = 0 if "size" in extended else entry.size
    fixed = TreeEntry(short or name, entry.kind, entry.mode, size, entry.target)
    return out + _ustar(fixed, _TYPES[entry.kind], prefix, epoch)


def _split(name: str) -> tuple[str, str | None]:
    """Cut a path into the 155 and 100 bytes that the header has for it; None if there is no such place."""
    if not name.isascii():
        return "", None
    if len(name) <= 100:
        return "", name
    cut = name.find("/", len(name) - 101, 156)
    return (name[:cut], name[cut + 1 :]) if 0 < cut < len(name) - 1 else ("", None)


def _pax_record(key: str, value: str) -> bytes:
    """Return `length key=value`, where the length counts its own digits."""
    body = f" {key}={value}\n".encode()
    length = len(body) + 1
    while length != len(body) + len(str(length)):
        length = len(body) + len(str(length))
    return str(length).encode() + body


def _ustar(entry: TreeEntry, kind: bytes, prefix: str, epoch: int) -> bytes:
    """Return the header block; values that do not fit are in a pax header before it, and are cut here."""
    name, target, before = (part.encode("ascii", "replace") for part in (entry.path, entry.target, prefix))
    mode, nobody, size, time = b"%07o" % entry.mode, b"%07o" % 0, b"%011o" % entry.size, b"%011o" % epoch
    fields = (name, mode, nobody, nobody, size, time, b" " * 8, kind, target, b"ustar", b"00", b"", b"", b"", b"")
    header = _USTAR.pack(*fields, before)
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


def pack_verified(
    tree: Path,
    output: Path,
    records: Sequence[FileRecord],
    *,
    top: str,
    epoch: int,
    jobs: int,
    cache: BlockCache,
    progress: Meter = silent,
) -> None:
    """Pack a tree, prove that the tarball holds what its records say, and keep the large files' compressed forms.

    Parameters and errors are those of `pack` and `verify_tarball`.
    """
    expected = {record.path: record for record in records}
    segments = pack(tree, output, top=top, epoch=epoch, jobs=jobs, records=expected, cache=cache, progress=progress)
    verify_tarball(output, expected, top=top, segments=segments)
    cache.keep(output, segments)


def verify_tarball(
    path: Path, expected: Mapping[str, FileRecord], *, top: str, segments: Sequence[GzipSegment] = ()
) -> None:
    """Read a tar.gz again and prove that every member is what the records of its stage say.

    All of it is read from the disk. A member is inflated and hashed, unless `pack` took its deflate data from the
    cache: then that data is compared by sha256 with the entry, which was cut out of an artifact that this function had
    inflated and found right. Either way the member inflates to the bytes with the sha256 of its record.

    Parameters
    ----------
    path
        The artifact.
    expected
        The records by path below `top`, all of them.
    top
        Name of the one folder that everything must lie in.
    segments
        What `pack` returned; none of it is trusted. New ones are sealed for `BlockCache.keep`.

    Raises
    ------
    IntegrityError
        It is damaged, or a member is missing, listed twice, unexpected or different.
    FileError
        It cannot be read.
    """
    seen: set[str] = set()
    places = {segment.start: segment for segment in segments}
    with os_errors(path), path.open("rb", buffering=0) as file:
        stream = GzipReader(file, segments)
        try:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:
                    name = _name_below(path, top, member)
                    if name in seen:
                        raise IntegrityError("is listed twice", where=f"{path}: {name}")
                    seen.add(name)
                    segment = places.pop(member.offset_data, None) if member.size else None
                    _compare(f"{path}: {name}", archive, member, expected.get(name), segment)
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise IntegrityError(f"is not a well-formed tar archive: {error}", where=path) from error
        while stream.read(_CHUNK):
            continue
    for name in expected:
        if name not in seen:
            raise IntegrityError("is missing", where=f"{path}: {name}")
    if places:
        raise IntegrityError("has a segment that is not a member", where=path)


def _name_below(path: Path, top: str, member: tarfile.TarInfo) -> str:
    if member.name != top and not member.name.startswith(f"{top}/"):
        raise IntegrityError(f"does not lie in {top}/", where=f"{path}: {member.name}")
    return member.name[len(top) + 1 :]


def _compare(
    where: str,
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    record: FileRecord | None,
    segment: GzipSegment | None,
) -> None:
    if member.isdir():
        if member.mode != 0o755 or record is not None:
            raise IntegrityError(f"is a folder of mode {member.mode:04o}", where=where)
        return
    if record is None:
        raise IntegrityError("is not one of the files that were packed", where=where)
    if member.issym():
        found = FileRecord(path=record.path, link=member.linkname)
    elif member.isreg():
        found = _found(archive, member, record.path, segment)
    else:
        raise IntegrityError("is neither a file, a folder nor a link", where=where)
    if found != record:
        wrong = [name for name in FileRecord.__struct_fields__ if getattr(found, name) != getattr(record, name)]
        raise IntegrityError(f"differs from what was packed in {', '.join(wrong)}", where=where)


def _found(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, segment: GzipSegment | None) -> FileRecord:
    """Return the record of a member from its bytes, or from the comparison if it is a segment from the cache."""
    if segment is not None and segment.block is not None:
        size, sha256 = segment.size, segment.sha256
        if size != member.size:
            raise IntegrityError("is longer or shorter than its cached data", where=path)
    else:
        size, sha256 = member.size, _read(archive, member)
        if segment is not None and (segment.size, segment.sha256) != (size, sha256):
            raise IntegrityError("differs from what was packed", where=path)
    return FileRecord(path=path, size=size, sha256=sha256, mode=_MODES.get(member.mode))


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    reader = archive.extractfile(member)
    assert reader is not None
    digest = hashlib.sha256()
    while part := reader.read(_CHUNK):
        digest.update(part)
    return digest.hexdigest()
