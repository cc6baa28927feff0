"""Count how often Mach-O files are opened and parsed."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from macbuild.macho.image import Image

__all__ = ["Counts", "counting"]


@dataclass
class Counts:
    """Opens by path, and parses by file name and by the bytes of the header and load commands."""

    opens: Counter[str] = field(default_factory=Counter)
    parses: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    def parses_of(self, name: str) -> list[int]:
        """Return how often each version of a file was parsed."""
        return [count for (found, _), count in self.parses.items() if found == name]


_active: list[tuple[Path, Counts]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _active and isinstance(arguments[0], str | os.PathLike):
        root, counts = _active[-1]
        path = os.fspath(arguments[0])
        if path.startswith(str(root)):
            counts.opens[os.path.relpath(path, root)] += 1


_hooked: list[bool] = []  # An audit hook stays for the life of the process.


@contextmanager
def counting(root: Path) -> Iterator[Counts]:
    """Count opens and parses of the files below a folder inside the block."""
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    counts = Counts()
    original = Image.__init__

    def parse(self: Image, data: bytes, offset: int, size: int, where: str) -> None:
        original(self, data, offset, size, where)
        name = os.path.basename(where.partition(" (")[0])
        counts.parses[name, self.read(0, self.commands_end)] += 1

    _active.append((root, counts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "__init__", parse)
        try:
            yield counts
        finally:
            _active.pop()
