"""Fuzz merging, thinning and signing of universal files: slices must come out unchanged."""

from __future__ import annotations

import contextlib
from pathlib import Path

from macbuild.errors import MacbuildError
from macbuild.macho.fat import merge, thin
from macbuild.macho.file import open_macho
from macbuild.macho.sign import sign_private
from macbuild.macho.verify import verify_file
from tests.fuzz.common import scratch, split


def check(data: bytes) -> None:
    """Split the input into two files at a place chosen by the control bytes, merge them, extract slices, sign all."""
    control, content = split(data)
    middle = int.from_bytes(control[:4], "little")
    with scratch() as folder:
        paths = [folder / "one", folder / "two"]
        for path, part in zip(paths, (content[:middle], content[middle:]), strict=True):
            path.write_bytes(part)
        for path in paths:
            with contextlib.suppress(MacbuildError):
                _slices(path)
        output = folder / "both"
        try:
            merge([path for path in paths if path.stat().st_size], output)
        except MacbuildError:
            assert not output.exists()
            assert len(list(folder.iterdir())) == 2
            return
        before = {arch: part for path in paths if path.stat().st_size for arch, part in _slices(path).items()}
        assert _slices(output) == before
        try:
            sign_private(output)
        except MacbuildError:
            return
        verify_file(output)


def _slices(path: Path) -> dict[str, bytes]:
    """Extract every slice."""
    with open_macho(path) as file:
        archs = file.archs
    found = {}
    part = path.with_name("part")
    for arch in archs:
        thin(path, arch, part)
        found[arch] = part.read_bytes()
        part.unlink()
    return found
