"""Give all targets a fast scratch folder, limits, control bytes, and mutations if atheris is missing."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import Check

SECONDS = 2.0  # of processor time for one input
MEGABYTES = 512
CONTROL = 8  # bytes before the file, which select the operations on it

_FAST = Path("/dev/shm")  # A file system in memory: the targets write and sync small files all the time.
_WORDS = (0, 1, 7, 8, 0x7FFFFFFF, 0xFFFFFFFF)
_KINDS = ("set", "flip", "word", "wide", "cut", "repeat", "insert")


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new folder, in memory where the system supports it."""
    fast = _FAST if os.access(_FAST, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast, prefix="macbuild-fuzz-") as folder:
        yield Path(folder)


def split(data: bytes) -> tuple[bytes, bytes]:
    """Split an input into its control bytes and the file."""
    return data[:CONTROL].ljust(CONTROL, b"\0"), data[CONTROL:]


def bounded(check: Check) -> Check:
    """Return a check that also fails if one input takes too much processor time."""

    def run(data: bytes) -> None:
        start = time.process_time()
        check(data)
        spent = time.process_time() - start
        assert spent < SECONDS, f"{spent:.1f} s for an input of {len(data)} bytes"

    return run


class Mutation(NamedTuple):
    """A change of an input; `place` counts in 65536ths of its length."""

    kind: str
    place: int
    value: int


def mutate(data: bytes, mutations: Sequence[Mutation]) -> bytes:
    """Apply changes one after the other."""
    new = bytearray(data)
    for kind, place, value in mutations:
        at = place * len(new) >> 16
        word = _WORDS[value % len(_WORDS)]
        if kind == "set":
            new[at : at + 1] = bytes([value & 0xFF])
        elif kind == "flip" and at < len(new):
            new[at] ^= 1 << value % 8
        elif kind == "word":
            new[at & ~3 : (at & ~3) + 4] = word.to_bytes(4, "little" if value & 0x40 else "big")
        elif kind == "wide":
            new[at & ~7 : (at & ~7) + 8] = (word << 32).to_bytes(8, "little")
        elif kind == "cut":
            del new[at : at + 1 + value % 64]
        elif kind == "repeat":
            new[at:at] = new[at : at + 1 + value % 64]
        else:
            new[at:at] = bytes([value & 0xFF]) * (1 + value % 16)
    return bytes(new)


def random_mutations(source: random.Random) -> list[Mutation]:
    """Draw a few changes."""
    count = source.randrange(1, 6)
    return [Mutation(source.choice(_KINDS), source.randrange(1 << 16), source.randrange(256)) for _ in range(count)]


KINDS: Sequence[str] = _KINDS
