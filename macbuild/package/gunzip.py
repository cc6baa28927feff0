"""Read back gzip data that `macbuild.package.gzip` wrote: inflate every part, or compare it with a verified one."""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from zlib_ng import zlib_ng

from macbuild.errors import IntegrityError
from macbuild.package.blocks import GzipSegment
from macbuild.package.gzip import BLOCK, GZIP_HEADER, RAW

__all__ = ["GzipReader"]

_CHUNK = BLOCK >> 3
# A stored block of two bytes and an empty last one (RFC 1951, sections 3.2.4 and 3.2.6). A decoder reads them as such
# only if it stands at a byte boundary between two blocks.
_PROBE, _PROBED = bytes.fromhex("000200fdff4f4b0300"), b"OK"


class GzipReader(io.BufferedIOBase):
    """Read a gzip file of exactly one member as `gzip_stream` writes it; its CRC and length are checked at the end.

    A segment is inflated by itself, which proves that it stands alone, and sealed. One that was taken from a cache is
    not inflated: its deflate data is compared with the entry, which was proved to inflate to the segment's content
    (see `macbuild.package.blocks`). Such a segment reads as zeros, as a hole in a sparse file does; the caller knows
    its content by its place. The stream can seek forward.

    Parameters
    ----------
    file
        An open file.
    segments
        The value of `GzipWriter.segments`, in order. None of it is trusted; `seal` is filled in.

    Raises
    ------
    IntegrityError
        The data is damaged, truncated or followed by something, or a segment differs from its description.
    """

    def __init__(self, file: BinaryIO, segments: Sequence[GzipSegment] = ()) -> None:
        self._file = file
        self._parts = self._walk(segments)
        self._ready = memoryview(b"")
        self._hole = 0
        self._place = 0
        self._size = 0
        self._crc = 0

    def tell(self) -> int:
        """Return how many bytes were read or skipped."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Skip forward to an offset."""
        if whence != io.SEEK_SET or offset < self._place:
            raise io.UnsupportedOperation("only forward")
        while self._place < offset and (count := self._available(offset - self._place)):
            self._pass(count)
        return self._place

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes, fewer only at the end; a size is required, because all may be too much."""
        if size is None or size < 0:
            raise io.UnsupportedOperation("read of unknown size")
        parts: list[bytes | memoryview] = []
        while size and (count := self._available(size)):
            parts.append(bytes(count) if self._hole else self._ready[:count])
            self._pass(count)
            size -= count
        return b"".join(parts)

    def _available(self, size: int) -> int:
        """Return how many of `size` bytes are available at once; 0 at the end."""
        while not self._ready and not self._hole:
            part = next(self._parts, None)
            if part is None:
                return 0
            if isinstance(part, int):
                self._hole = part
            else:
                self._ready = memoryview(part)
        return min(size, self._hole or len(self._ready))

    def _pass(self, count: int) -> None:
        self._place += count
        if self._hole:
            self._hole -= count
        else:
            self._ready = self._ready[count:]

    def _walk(self, segments: Sequence[GzipSegment]) -> Iterator[bytes | int]:
        """Yield the content piece by piece, or the number of bytes where they were compared."""
        if self._file.read(len(GZIP_HEADER)) != GZIP_HEADER:
            raise self._error("does not begin like gzip data that macbuild writes")
        at = len(GZIP_HEADER)
        for segment in segments:
            yield from self._inflate(segment.at - at)
            if self._size != segment.start:
                raise self._error("has a segment in another place")
            at = segment.at + segment.packed
            if segment.block is None:
                yield from self._prove(segment)
            else:
                self._compare(segment)
                yield segment.size
        yield from self._inflate(None)

    def _prove(self, segment: GzipSegment) -> Iterator[bytes]:
        """Inflate a segment by itself and seal it."""
        before, self._crc = self._crc, 0
        digest = hashlib.sha256(segment.facts)
        yield from self._inflate(segment.packed, digest)
        if (self._size - segment.start, self._crc) != (segment.size, segment.crc):
            raise self._error("has a segment of other content")
        self._crc = zlib_ng.crc32_combine(before, segment.crc, segment.size)
        segment.seal = digest.digest()

    def _compare(self, segment: GzipSegment) -> None:
        """Compare a segment with the cache entry that it was taken from."""
        digest = hashlib.sha256(segment.facts)
        left = segment.packed
        while left and (data := self._file.read(min(left, BLOCK))):
            digest.update(data)
            left -= len(data)
        if segment.block is None or digest.digest() != segment.block.seal:
            raise self._error("differs from the cached data that it was made of")
        self._size += segment.size
        self._crc = zlib_ng.crc32_combine(self._crc, segment.crc, segment.size)

    def _inflate(self, length: int | None, digest: hashlib._Hash | None = None) -> Iterator[bytes]:
        """Inflate a number of bytes of the file, which must end between two blocks, or all of it if None."""
        stream = zlib_ng.decompressobj(RAW)
        left = length
        while left != 0 and not stream.eof:
            data = self._file.read(_CHUNK if left is None else min(left, _CHUNK))
            if not data:
                raise self._error("the gzip data is truncated")
            if digest is not None:
                digest.update(data)
            if left is not None:
                left -= len(data)
            for part in self._decompress(stream, data):
                self._size += len(part)
                self._crc = zlib_ng.crc32(part, self._crc)
                yield part
        if length is None:
            self._check_end(stream.unused_data)
        elif stream.eof or b"".join(self._decompress(stream, _PROBE)) != _PROBED or stream.unused_data:
            raise self._error("has a segment that does not stand alone")

    def _decompress(self, stream: zlib_ng._Decompress, data: bytes) -> Iterator[bytes]:
        """Inflate data and yield it in parts that fit into memory."""
        part = b"-"
        while data or len(part) == BLOCK:
            try:
                part = stream.decompress(data, BLOCK)
            except zlib_ng.error as error:  # type: ignore[misc]  # its stub calls the class an instance
                raise self._error(f"the gzip data is damaged: {error}") from error
            data = stream.unconsumed_tail
            if part:
                yield part
            if stream.eof:
                return

    def _check_end(self, rest: bytes) -> None:
        rest += self._file.read(9)
        if len(rest) < 8:
            raise self._error("the gzip data is truncated")
        if rest[:8] != struct.pack("<2I", self._crc, self._size & 0xFFFFFFFF):
            raise self._error("the gzip data is damaged: its checksum or length is wrong")
        if len(rest) > 8:
            raise self._error("something follows the gzip data")

    def _error(self, message: str) -> IntegrityError:
        return IntegrityError(message, where=self._file.name)
