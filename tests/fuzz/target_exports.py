"""Fuzz the restriction of exports: either a file with only the requested exports, or an error and an untouched file."""

from __future__ import annotations

import contextlib

from macbuild.errors import MacbuildError
from macbuild.macho.exports import restrict_exports
from macbuild.macho.file import open_macho
from macbuild.macho.image import Image
from macbuild.macho.symbols import read_exports
from macbuild.macho.verify import read_signature, verify_image
from tests.fuzz.common import scratch, split

_GLOBS = ("_f", "_a*", "*e*", "_*", "[!_]*", "_TRITONBACKEND_*", "_w?ak", "")


def check(data: bytes) -> None:
    """Restrict the exports of a private file to the globs chosen by the control bytes."""
    control, content = split(data)
    keep = [glob for index, glob in enumerate(_GLOBS) if control[0] >> index & 1]
    with scratch() as folder:
        path = folder / "libx.so"
        path.write_bytes(content)
        sound: list[bool] = []
        signed = False
        before: list[frozenset[bytes]] = []
        with contextlib.suppress(MacbuildError), open_macho(path) as file:
            before = [read_exports(image).names for image in file.images]
            sound = [_sound(image) for image in file.images]
            signed = any(image.signature_range for image in file.images)
        try:
            removed = restrict_exports(path, keep)
        except MacbuildError:
            assert signed or path.read_bytes() == content  # A hostile signature may be impossible to replace.
            return
        gone = {name.encode("utf-8", "surrogateescape") for name in removed}
        with open_macho(path) as file:
            assert [read_exports(image).names for image in file.images] == [names - gone for names in before]
            if all(sound):
                assert all(_sound(image) for image in file.images)
        assert removed or path.read_bytes() == content
        assert restrict_exports(path, keep) == []


def _sound(image: Image) -> bool:
    """Return whether there is a valid ad hoc signature."""
    try:
        facts = read_signature(image)
        verify_image(image)
    except MacbuildError:
        return False
    return facts is not None and facts.kind != "cms"
