"""Fuzz the editor with an edit chosen by the control bytes; everything else must stay byte for byte."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from macbuild.errors import MacbuildError
from macbuild.macho.constants import LC, LOAD_DYLIB_COMMANDS
from macbuild.macho.edit import Edits, edit_file, edit_private
from macbuild.macho.file import MachOFile, open_macho
from macbuild.macho.image import Image
from macbuild.macho.verify import read_signature, verify_image
from tests.fuzz.common import scratch, split

_TOUCHED = LOAD_DYLIB_COMMANDS | {LC.ID_DYLIB, LC.RPATH, LC.CODE_SIGNATURE, LC.BUILD_VERSION, LC.VERSION_MIN_MACOSX}
_NAMES = ("@rpath/libnew.dylib", "@loader_path/..", "x", "/usr/lib/libSystem.B.dylib", "n" * 300, "a\0b", "", "\udcff")


def check(data: bytes) -> None:
    """Edit a file beside itself, into another one and in place, and compare the results."""
    control, content = split(data)
    with scratch() as folder:
        path = folder / "libx.dylib"
        path.write_bytes(content)
        edits = Edits()
        kept: list[list[bytes]] = []
        sound: list[bool] = []
        with contextlib.suppress(MacbuildError), open_macho(path) as file:
            edits = _edits(control, file)
            kept = [_others(image) for image in file.images]
            sound = [_sound(image) for image in file.images]
        output = (path, folder / "other")[control[7] & 1]
        try:
            changed = edit_file(path, edits, output=output)
        except MacbuildError:
            assert [child.read_bytes() for child in folder.iterdir()] == [content]
            return
        assert {path, output} == set(folder.iterdir())
        assert changed or output.read_bytes() == content
        with open_macho(output) as file:
            assert [_others(image) for image in file.images] == kept
            if edits.strip_signature:
                assert not any(image.signature_range for image in file.images)
            elif all(sound):
                assert all(_sound(image) for image in file.images)
        _check_private(folder / "private", content, edits, output.read_bytes())


def _check_private(path: Path, content: bytes, edits: Edits, expected: bytes) -> None:
    path.write_bytes(content)
    edit_private(path, edits)
    assert path.read_bytes() == expected


def _others(image: Image) -> list[bytes]:
    """Return the commands that no edit names; of __LINKEDIT all but its two sizes, which a signature changes."""
    found = []
    for command in image.commands:
        if command.cmd in _TOUCHED:
            continue
        data = bytearray(command.data)
        if command.cmd == LC.SEGMENT_64 and data[8:24].partition(b"\0")[0] == b"__LINKEDIT":
            data[32:40] = data[48:56] = bytes(8)
        found.append(bytes(data))
    return found


def _sound(image: Image) -> bool:
    """Return whether there is a valid ad hoc signature."""
    try:
        facts = read_signature(image)
        verify_image(image)
    except MacbuildError:
        return False
    return facts is not None and facts.kind != "cms"


def _edits(control: bytes, file: MachOFile) -> Edits:
    dylibs: list[str] = []
    rpaths: list[str] = []
    for image in file.images:
        with contextlib.suppress(MacbuildError):
            dylibs += [dylib.name for dylib in image.dylibs]
            rpaths += image.rpaths
    name = _NAMES[control[0] % len(_NAMES)]
    other = _NAMES[control[0] // len(_NAMES) % len(_NAMES)]
    dylib = _pick(dylibs, control[1])
    rpath = _pick(rpaths, control[2])
    last = _pick(rpaths[::-1], control[2])
    wishes: list[Callable[[], dict[str, Any]]] = [
        lambda: {"id": name},
        lambda: {"change": {dylib: other}},
        lambda: {"remove": frozenset({dylib})},
        lambda: {"weaken": frozenset({dylib})},
        lambda: {"rpaths": (name, rpath)},
        lambda: {"add_rpaths": (other,)},
        lambda: {"delete_rpaths": (rpath,)},
        lambda: {"replace_rpaths": {last: name}},
        lambda: {"deduplicate_rpaths": True},
        lambda: {"minos": control[5] << 16},
        lambda: {"sdk": control[5] << 24},
        lambda: {"strip_signature": True},
    ]
    bits = int.from_bytes(control[3:5], "little")
    chosen: dict[str, Any] = {}
    for index, wish in enumerate(wishes):
        if bits >> index & 1:
            chosen.update(wish())
    return Edits(**chosen)


def _pick(names: Sequence[str], index: int) -> str:
    return names[index % len(names)] if names else "none"
