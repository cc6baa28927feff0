"""Fuzz the unpacker: nothing is written beside the destination, and after an error there is no destination.

An input is an archive; or `!`, a byte for the compression and a tar archive whose header checksums are corrected; or
`#` and lines `name|content|mode` for a zip archive. Without these two, most changes fail at a checksum.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from macbuild.errors import MacbuildError
from macbuild.source.archive.unpack import Limits, unpack
from tests.fuzz.archives import make_zip
from tests.fuzz.common import scratch

# Small, so that one input costs milliseconds.
_LIMITS = Limits(files=300, total=4 << 20, ratio_floor=1 << 20)
_PACKERS: Sequence[Callable[[bytes], bytes]] = (
    bytes,
    gzip.compress,
    bz2.compress,
    lambda tar: lzma.compress(tar, preset=0),
)


def check(data: bytes) -> None:
    """Unpack, and check the files that exist afterwards."""
    if data[:1] == b"!":
        data = _PACKERS[sum(data[1:2]) % len(_PACKERS)](_with_checksums(data[2:]))
    elif data[:1] == b"#":
        data = _zip_of(data[1:])
    with scratch() as folder:
        archive = folder / "archive"
        archive.write_bytes(data)
        home = folder / "home"
        home.mkdir()
        destination = home / "destination"
        try:
            unpack(archive, destination, limits=_LIMITS)
        except MacbuildError:
            assert not list(home.iterdir())
        else:
            assert list(home.iterdir()) == [destination]
            _check_tree(destination)
        assert sorted(folder.iterdir()) == [archive, home]
        assert archive.read_bytes() == data


def _with_checksums(tar: bytes) -> bytes:
    """Correct the checksum of each header, up to the first empty block."""
    new = bytearray(tar)
    at = 0
    while at + 512 <= len(new) and any(new[at : at + 512]):
        new[at + 148 : at + 156] = b" " * 8
        new[at + 148 : at + 156] = b"%06o\0 " % sum(new[at : at + 512])
        digits = bytes(new[at + 124 : at + 136]).strip(b" \0")
        size = int(digits, 8) if digits.isdigit() and not set(digits) & set(b"89") else 0
        at += 512 + size + -size % 512
    return bytes(new)


def _zip_of(lines: bytes) -> bytes:
    entries: list[tuple[str, bytes | str, int]] = []
    for line in lines.split(b"\n")[:50]:
        name, content, mode = [*line.split(b"|"), b"", b""][:3]
        bits = int(mode, 8) & 0xFFFF if mode.isdigit() and not set(mode) & set(b"89") else 0o100644
        if name.split(b"\0", 1)[0]:
            entries.append((name.decode("latin-1"), content, bits))
    return make_zip(entries)


def _check_tree(root: Path) -> None:
    real = os.path.realpath(root)
    assert not root.is_symlink()
    size = 0
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            status = path.lstat()
            assert os.path.realpath(path).startswith(f"{real}{os.sep}") or os.path.realpath(path) == real
            assert not status.st_mode & 0o7022 or path.is_symlink()
            size += 0 if path.is_symlink() or path.is_dir() else status.st_size
    assert size <= _LIMITS.total
