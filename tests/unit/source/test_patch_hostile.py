"""Test that the patch engine refuses hostile trees, files of edits and records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli_w

from macbuild.errors import PatchError
from macbuild.source.patch.apply import apply_edits, check_edits
from macbuild.source.patch.model import load_edits
from macbuild.source.patch.record import RECORD, revert_edits
from tests.support.edits import Plain, applied, edit, files, tree


def test_links_and_odd_files_are_refused(tmp_path: Path) -> None:
    folder = tree(tmp_path, real__a_cc="hit", b_cc="hit")
    (folder / "src").symlink_to(tmp_path)
    (folder / "a.cc").symlink_to(folder / "b.cc")
    (folder / "c.cc").mkdir()
    for name in ("src/tree/b.cc", "a.cc", "c.cc"):
        with pytest.raises(PatchError):
            check_edits(folder, files(edit(file=name, anchor="hit", text="x")), "macos")
    with pytest.raises(PatchError, match="no such folder"):
        check_edits(tmp_path / "none", files(edit(anchor="hit", text="x")), "macos")


def test_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="not text"):
        applied(tmp_path, b"hit\0", edit(anchor="hit", text="x"))
    with pytest.raises(PatchError, match="larger than"):
        applied(tmp_path, b"hit" * (3 << 20), edit(anchor="hit", text="x"))


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../a.cc"},
        {"file": "/etc/passwd"},
        {"file": "a//b"},
        {"file": "a\\b"},
        {"file": ".git/config"},
        {"file": RECORD},
        {"file": "a\nb"},
        {"anchor": "two\nlines"},
        {"anchor": " hit"},
        {"anchor": None},
        {"pattern": "x"},
        {"anchor": None, "pattern": "(a+)+b"},
        {"anchor": None, "pattern": "(a|b){9}x"},
        {"anchor": None, "pattern": ".*.*.*.*x"},
        {"anchor": None, "pattern": "(?s).x"},
        {"anchor": None, "pattern": r"(a)\1"},
        {"anchor": None, "pattern": "x?y?"},
        {"anchor": None, "pattern": "[x"},
        {"anchor": None, "pattern": "[[x]"},
        {"anchor": None, "pattern": "[a--b]"},
        {"gone": "(a+)+b"},
        {"text": ""},
        {"text": "a\rb"},
        {"action": "delete"},
        {"action": "guard", "text": "a\nb"},
        {"action": "rename"},
        {"matches": 0},
        {"checked": []},
        {"colour": "red"},
        {"text": "x" * 5000},
        {"name": "No Name"},
    ],
    ids=str,
)
def test_senseless_or_harmful_edit_files_are_refused(tmp_path: Path, change: Plain) -> None:
    one = {key: value for key, value in {**edit(anchor="hit", text="new"), **change}.items() if value is not None}
    path = tmp_path / "edits.toml"
    path.write_text(tomli_w.dumps({"schema": 1, "component": "demo", "edits": [one]}))
    with pytest.raises(PatchError):
        load_edits(path)


def test_edit_folder_needs_its_components_name_and_unique_edits(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    with pytest.raises(PatchError, match="no edits"):
        load_edits(folder)
    text = tomli_w.dumps({"schema": 1, "component": "demo", "edits": [edit(anchor="hit", text="new")]})
    (folder / "b.toml").write_text(text)
    assert [one.name for file in load_edits(folder) for one in file.edits] == ["one"]
    (folder / "a.toml").write_text(text)
    with pytest.raises(PatchError, match="two edits have the name 'one'"):
        load_edits(folder)
    (folder / "a.toml").write_text(text.replace('"demo"', '"other"'))
    with pytest.raises(PatchError, match="component is 'other'"):
        load_edits(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"path": "../x", "layers": [{"before": "0" * 64, "after": "1" * 64, "hunks": []}]}]},
        {"version": 2},
        {"edits": 3},
        {"files": [{"path": "a.cc", "layers": []}]},
    ],
)
def test_a_hostile_record_is_refused(tmp_path: Path, change: Plain) -> None:
    folder = tree(tmp_path, a_cc="hit")
    (folder / RECORD).write_text(json.dumps({"version": 1, "edits": [], "files": [], **change}))
    with pytest.raises(PatchError):
        revert_edits(folder)


@pytest.mark.parametrize("was", ["?", "AAAA"])
def test_a_record_that_does_not_restore_the_file_writes_nothing(tmp_path: Path, was: str) -> None:
    folder = tree(tmp_path, a_cc="hit")
    apply_edits(folder, files(edit(anchor="hit", text="new")), "macos")
    text = (folder / RECORD).read_text()
    (folder / RECORD).write_text(text.replace("aGl0", was))
    with pytest.raises(PatchError, match=r"damaged|does not lead back"):
        revert_edits(folder)
    assert (folder / "a.cc").read_text() == "new"
