"""Keep the compressed form of large files, so that packing one again costs no compression and no inflation.

An entry is one file of the cache folder: a fixed head, then deflate data (RFC 1951) that stands alone: it starts at a
byte boundary without a dictionary, ends at one, and holds no final block. The head tells sha256, size and CRC of what
the data inflates to, and a sha256 over those facts and the data. Its name depends on all that decides the bytes.

What an entry claims was proved before it was written: an entry is cut out of an artifact that had been read back from
the disk, inflated and compared with the stage (`macbuild.package.tarball.verify_tarball`). So where an artifact has
the same bytes as an entry, they inflate to what the entry says, and comparing a sha256 proves as much as inflating.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import IntegrityError, MacbuildError
from macbuild.files import atomic_path, copy_range

__all__ = ["Block", "BlockCache", "GzipSegment"]

# Magic, sha256 of the content, its size, size of the deflate data, CRC-32 of the content; then the seal.
_FACTS = struct.Struct("<8s 32s Q Q I")
_MAGIC = b"mbblock1"
HEAD = _FACTS.size + 32


@dataclass(frozen=True, slots=True)
class Block:
    """The facts in an entry: size and CRC-32 of its content, and the seal, a sha256 over all facts and the data."""

    size: int
    crc: int
    seal: bytes


@dataclass(slots=True)
class GzipSegment:
    """A large file in a gzip stream, whose deflate data stands alone.

    Parameters
    ----------
    sha256
        Of the file, as the stage has it.
    start, size
        Where it lies in the uncompressed stream, in bytes.
    at, packed
        Where its deflate data lies in the compressed file, in bytes.
    crc
        CRC-32 of the file.
    block
        The entry that its deflate data was taken from; None if it was compressed now.
    seal
        What reading it back found; empty before.
    """

    sha256: str
    start: int
    size: int = 0
    at: int = 0
    packed: int = 0
    crc: int = 0
    block: Block | None = None
    seal: bytes = b""

    @property
    def facts(self) -> bytes:
        """The facts for its entry, as they are stored and sealed."""
        return _FACTS.pack(_MAGIC, bytes.fromhex(self.sha256), self.size, self.packed, self.crc)


class BlockCache:
    """Keep compressed forms in a folder; several runs may use it at once.

    Parameters
    ----------
    folder
        Made when the first entry is written. Each file in it may be removed at any time; the time of a file is that
        of its last use.
    identity
        All that decides the compressed bytes besides the content, such as the level and version of the compressor.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder = folder
        self._identity = identity

    def path(self, sha256: str) -> Path:
        """Return the place of the entry for a content."""
        return self.folder / hashlib.sha256(f"{self._identity} {sha256}".encode()).hexdigest()

    @contextmanager
    def open(self, sha256: str) -> Iterator[tuple[Block, memoryview] | None]:
        """Yield the entry of a content with its deflate data, or None if there is none. A damaged entry is removed."""
        path = self.path(sha256)
        try:
            file = path.open("rb")
        except OSError:
            yield None
            return
        with file:
            if os.fstat(file.fileno()).st_size:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
                    block = _parse(view, sha256)
                    if block is not None:
                        with suppress(OSError):
                            os.utime(path)
                        with view[HEAD:] as deflated:
                            yield block, deflated
                        return
        with suppress(OSError):
            path.unlink()
        yield None

    def keep(self, artifact: Path, segments: Iterable[GzipSegment]) -> None:
        """Write entries for the new segments of an artifact that was read back and verified.

        A segment that is no longer what was verified is left out; so are all of them if the folder cannot be written,
        since the cache only saves time.
        """
        with suppress(OSError), artifact.open("rb") as file:
            for segment in segments:
                if segment.block is None and segment.seal:
                    with suppress(MacbuildError):
                        self._write(file, segment)

    def _write(self, file: BinaryIO, segment: GzipSegment) -> None:
        with atomic_path(self.path(segment.sha256)) as partial, partial.open("w+b") as out:
            out.write(segment.facts + segment.seal)
            copy_range(file, out, segment.at, segment.packed)
            out.flush()
            out.seek(0)
            with mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
                if _parse(view, segment.sha256) is None:
                    raise IntegrityError("was changed after it was verified", where=file.name)


def _parse(view: memoryview, sha256: str) -> Block | None:
    """Return the facts of an entry if it is whole and for the requested content."""
    if len(view) < HEAD:
        return None
    magic, content, size, packed, crc = _FACTS.unpack_from(view)
    block = Block(size, crc, bytes(view[_FACTS.size : HEAD]))
    if magic != _MAGIC or content.hex() != sha256 or packed != len(view) - HEAD:
        return None
    with view[: _FACTS.size] as facts, view[HEAD:] as deflated:
        digest = hashlib.sha256(facts)
        digest.update(deflated)
    return block if digest.digest() == block.seal else None
