from __future__ import annotations

import struct
from pathlib import Path

import pytest

from macbuild.errors import MachOError
from macbuild.macho.edit import Edits, edit_private
from macbuild.macho.verify import verify_file
from tests.support import machobytes
from tests.unit.macho.test_edit import DEPS, ID, LOAD, RPATH, SIGNATURE, names, of_kind


@pytest.mark.parametrize("wide", [False, True])
def test_each_slice_with_the_entry_is_edited(tmp_path: Path, *, wide: bool) -> None:
    intel = machobytes.dylib("x86_64", dylibs=DEPS[:1], signed=True)
    arm = machobytes.dylib("arm64", dylibs=DEPS[1:], rpaths=["/a"], signed=True)
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.fat(intel, arm, wide=wide))
    header = path.read_bytes()[:0x4000]
    assert edit_private(path, Edits(change={DEPS[0]: "/0", DEPS[1]: "/1"}, add_rpaths=("/a",)))
    after = path.read_bytes()
    slices = after[0x4000 : 0x4000 + len(intel)], after[-len(arm) :]
    assert [names(each, LOAD) for each in slices] == [["/0"], ["/1", DEPS[2]]]
    assert [names(each, RPATH) for each in slices] == [["/a"], ["/a"]]
    assert after[:0x4000] == header
    assert len(verify_file(path)) == 2


def test_only_the_chosen_slices_are_edited(tmp_path: Path) -> None:
    intel, arm = machobytes.dylib("x86_64", signed=True), machobytes.dylib("arm64", signed=True)
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.fat(intel, arm))
    assert edit_private(path, Edits(id="/new"), archs=frozenset({"arm64"}))
    after = path.read_bytes()
    assert after[0x4000 : 0x4000 + len(intel)] == intel
    assert names(after[-len(arm) :], ID) == ["/new"]
    with pytest.raises(MachOError, match="has no slice arm64e; it has x86_64, arm64"):
        edit_private(path, Edits(id="/new"), archs=frozenset({"arm64e"}))
    with pytest.raises(MachOError, match="no slice is chosen"):
        edit_private(path, Edits(id="/new"), archs=frozenset())
    with pytest.raises(MachOError, match="has no dependency /none"):
        edit_private(path, Edits(change={"/none": "/x"}), archs=frozenset({"x86_64"}))


def test_stripping_one_slice_shrinks_the_file_and_keeps_the_other(tmp_path: Path) -> None:
    intel, arm = machobytes.dylib("x86_64", signed=True), machobytes.dylib("arm64", signed=True)
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.fat(intel, arm))
    edits = Edits(strip_signature=True, id="/new")
    assert edit_private(path, edits, archs=frozenset({"arm64"}))
    after = path.read_bytes()
    assert intel in after
    offset, size = struct.unpack_from(">2I", after, 8 + 20 + 8)
    assert offset + size == len(after)
    assert len(arm) > size
    assert not of_kind(after[offset:], SIGNATURE)
    assert names(after[offset:], ID) == ["/new"]
    assert [each.name for each in path.parent.iterdir()] == [path.name]
