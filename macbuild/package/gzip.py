"""Write a gzip stream (RFC 1952) with several threads; its bytes depend on the input alone.

The input is cut into blocks of 1 MiB. Each is compressed as raw deflate data with the 32 KiB before it as dictionary
and ends at a byte boundary (sync flush), so the blocks joined are one deflate stream in one gzip member. The number of
threads decides only when a block is made, never where it begins. The header has no time, no name and no system.
A segment of the stream begins with a block of its own without a dictionary, and so does what comes after it: its
deflate data stands alone and can be used again (`macbuild.package.blocks`).

The compressor is zlib-ng, pinned to the exact version in pyproject.toml, because Python's own zlib differs from build
to build. zlib-ng promises no stable output between versions, but 2.3.3, the one inside that pin, gives the same
output for any CPU with the same byte order:

- the hash of match candidates is one integer multiplication; the CRC instructions of x86 and Arm, which gave other
  matches, were taken out in 2.2 (zlib-ng pull request 1681);
- what is chosen by CPU at run time (match comparison, hash sliding, checksums) is exact and cannot change a decision;
- output no longer depends on stale bytes in the window since 2.3.3 (issue 2100, pull request 2102).

Measured: a build of it with every CPU-specific function left out packs the LibTorch tree to the same bytes as the
published wheel with AVX-512. The exception is IBM Z with the hardware compressor built in, which is off in its build
by default.

Level 7 is the first with zlib's own lazy matching (3 to 6 take Intel's "medium" strategy), and the first that reaches
the size of `gzip -6` on libraries: the LibTorch tree gets 1.002 of it in 0.3 of the time of `tar czf` on two cores.
"""

from __future__ import annotations

import collections
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias

from zlib_ng import zlib_ng

from macbuild.files import os_errors
from macbuild.package.blocks import Block, GzipSegment

__all__ = ["BLOCK", "GZIP_HEADER", "IDENTITY", "RAW", "WINDOW", "GzipWriter", "gzip_stream"]

LEVEL = 7
BLOCK = 1 << 20
WINDOW = 1 << 15
# Identification, method 8 (deflate), no flags, no time, no extra flags, system 255 (unknown): RFC 1952, section 2.3.
GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
RAW = -15
# What decides the deflate data of a segment besides its content; zlib-ng's own version counts, not its binding's.
IDENTITY = f"zlib-ng {zlib_ng.ZLIBNG_RUNTIME_VERSION} level {LEVEL} block {BLOCK} window {WINDOW}"

_Pending: TypeAlias = collections.deque[tuple[GzipSegment | None, Future[tuple[bytes, int, int]]]]


@contextmanager
def gzip_stream(output: BinaryIO, jobs: int) -> Iterator[GzipWriter]:
    """Yield a stream that compresses what is written to it; it is complete when the block ends without an error.

    Parameters
    ----------
    output
        An open file; it is not closed.
    jobs
        Threads that compress. At most about three times as many blocks are in memory.

    Raises
    ------
    FileError, NoSpaceError
        The output cannot be written.
    """
    with ThreadPoolExecutor(jobs, thread_name_prefix="gzip") as pool:
        stream = GzipWriter(output, pool, 2 * jobs)
        yield stream
        stream.finish()


class GzipWriter:
    """The stream of `gzip_stream`; `size` is the number of bytes put into it."""

    def __init__(self, output: BinaryIO, pool: Executor, limit: int) -> None:
        self.size = 0
        self.segments: list[GzipSegment] = []
        self._output = output
        self._pool = pool
        self._limit = limit
        self._pending: _Pending = collections.deque()
        self._segment: GzipSegment | None = None
        self._buffer = bytearray(WINDOW + BLOCK)
        self._dictionary = 0
        self._end = WINDOW
        self._packed = 0
        self._crc = 0
        self._write(GZIP_HEADER)

    def write(self, data: bytes) -> None:
        """Add bytes to the stream."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.fill(lambda room: _copy(rest, room), len(rest)) :]

    def fill(self, reader: Callable[[memoryview], int], limit: int) -> int:
        """Let `reader` put up to `limit` bytes straight into the stream, as `readinto` of a file does.

        Returns
        -------
        int
            How many bytes it put, 0 at the end of the file.
        """
        if self._end == len(self._buffer):
            self._submit(last=False)
        with memoryview(self._buffer)[self._end : self._end + limit] as room:
            count = reader(room)
        self._end += count
        self.size += count
        return count

    @contextmanager
    def segment(self, sha256: str) -> Iterator[None]:
        """Make what the block writes, a file of this sha256, a segment of the stream, listed in `segments`."""
        self._cut()
        self._segment = GzipSegment(sha256, self.size)
        self.segments.append(self._segment)
        yield
        self._cut()
        self._segment = None

    def paste(self, sha256: str, block: Block, data: memoryview) -> None:
        """Add a file of this sha256 by its deflate data, which was a segment of a stream like this one."""
        self._cut()
        self._collect(0)
        segment = GzipSegment(sha256, self.size, block.size, self._packed, len(data), block.crc, block)
        self.segments.append(segment)
        self.size += block.size
        self._crc = zlib_ng.crc32_combine(self._crc, block.crc, block.size)
        self._write(data)

    def finish(self) -> None:
        """Write the last block and the trailer."""
        self._submit(last=True)
        self._collect(0)
        self._write(struct.pack("<2I", self._crc, self.size & 0xFFFFFFFF))

    def _cut(self) -> None:
        """Make the next byte begin a block without a dictionary."""
        if self._end > WINDOW:
            self._submit(last=False)
        self._dictionary = 0

    def _submit(self, *, last: bool) -> None:
        block = self._buffer
        future = self._pool.submit(_deflate, block, self._dictionary, self._end, last=last)
        self._pending.append((self._segment, future))
        self._buffer = bytearray(WINDOW + BLOCK)
        self._buffer[:WINDOW] = memoryview(block)[-WINDOW:]
        self._dictionary = WINDOW
        self._end = WINDOW
        self._collect(self._limit)

    def _collect(self, limit: int) -> None:
        while len(self._pending) > limit:
            segment, future = self._pending.popleft()
            data, crc, size = future.result()
            self._crc = zlib_ng.crc32_combine(self._crc, crc, size)
            if segment is not None:
                segment.at = segment.at or self._packed
                segment.packed += len(data)
                segment.size += size
                segment.crc = zlib_ng.crc32_combine(segment.crc, crc, size)
            self._write(data)

    def _write(self, data: bytes | memoryview) -> None:
        with os_errors(self._output.name):
            self._output.write(data)
        self._packed += len(data)


def _copy(data: memoryview, room: memoryview) -> int:
    count = min(len(data), len(room))
    room[:count] = data[:count]
    return count


def _deflate(buffer: bytearray, dictionary: int, end: int, *, last: bool) -> tuple[bytes, int, int]:
    """Compress the block at WINDOW, with `dictionary` bytes before it; return its deflate data, CRC and length."""
    with memoryview(buffer) as view, view[WINDOW:end] as block, view[WINDOW - dictionary : WINDOW] as before:
        compressor = zlib_ng.compressobj(
            LEVEL, zlib_ng.DEFLATED, RAW, zlib_ng.DEF_MEM_LEVEL, zlib_ng.Z_DEFAULT_STRATEGY, before
        )
        data = compressor.compress(block) + compressor.flush(zlib_ng.Z_FINISH if last else zlib_ng.Z_SYNC_FLUSH)
        return data, zlib_ng.crc32(block), len(block)
