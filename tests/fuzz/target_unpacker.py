"""The unpacker: nothing is written beside the destination, and after an error there is none."""

from __future__ import annotations

import os
from pathlib import Path

from macbuild.errors import MacbuildError
from macbuild.fetch.unpack import Limits, unpack
from tests.fuzz.common import scratch

# Small, so that one input costs milliseconds.
_LIMITS = Limits(files=300, total=4 << 20, ratio_floor=1 << 20)


def check(data: bytes) -> None:
    """Unpack, and look at what there is now."""
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
