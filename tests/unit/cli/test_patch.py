from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from macbuild.cli.app import run
from macbuild.errors import PatchError, UsageError

EDITS = """schema = 1
component = "demo"

[[edits]]
name = "wide-size"
file = "src/sizes.cc"
anchor = "size_t amount"
action = "replace"
text = "uint64_t amount"
reason = "Another type of the same width"
gone = "fixed"
checked = [ { version = "r1", file = "demo src/sizes.cc", date = "2026-11-21", how = "read", found = "once" } ]

[[edits]]
name = "anywhere"
file = "src/sizes.cc"
pattern = '^old$'
action = "delete"
platform = "any"
reason = "Not needed"
checked = [ { version = "r1", file = "demo src/sizes.cc", date = "2026-11-21", how = "facts" } ]
"""
SOURCE = "size_t amount = 0;\nold\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MACBUILD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MACBUILD_RECIPES", str(tmp_path / "recipes"))
    for folder in ("patches/demo", "tree/src", "recipes"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "patches/demo/sizes.toml").write_text(EDITS)
    (tmp_path / "tree/src/sizes.cc").write_text(SOURCE)


def report(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert run(["patch", *words, "--json"]) == code
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["version"] == 1
    return data


def text(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(["patch", *words]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("edits", ["demo", "patches/demo", "patches/demo/sizes.toml"])
def test_edits_are_named_by_component_folder_or_file(capsys: pytest.CaptureFixture[str], edits: str) -> None:
    assert text(capsys, "check", edits, "tree") == (
        "wide-size (src/sizes.cc): applies: matches in line 1\nanywhere (src/sizes.cc): applies: matches in line 2\n"
    )
    assert Path("tree/src/sizes.cc").read_text() == SOURCE


def test_apply_check_and_revert(capsys: pytest.CaptureFixture[str]) -> None:
    assert text(capsys, "apply", "demo", "tree") == (
        "wide-size (src/sizes.cc): applied: matches in line 1\nanywhere (src/sizes.cc): applied: matches in line 2\n"
    )
    assert Path("tree/src/sizes.cc").read_text() == "uint64_t amount = 0;\n"
    assert text(capsys, "apply", "demo", "tree").count("already applied") == 2
    assert text(capsys, "check", "demo", "tree").count("already applied") == 2
    assert text(capsys, "revert", "tree") == "src/sizes.cc\n"
    assert Path("tree/src/sizes.cc").read_text() == SOURCE
    assert text(capsys, "revert", "tree", code=PatchError.exit_code) == ""


def test_json_has_states_lines_and_digests(capsys: pytest.CaptureFixture[str]) -> None:
    one, _ = report(capsys, "check", "demo", "tree")["edits"]
    assert one == {
        "name": "wide-size",
        "file": "src/sizes.cc",
        "state": "applied",
        "message": "matches in line 1",
        "lines": [1],
        "near": [],
    }
    data = report(capsys, "apply", "demo", "tree")
    (file,) = data["files"]
    assert file["path"] == "src/sizes.cc"
    assert file["before"] != file["after"]
    assert [row["state"] for row in data["edits"]] == ["applied", "applied"]
    assert report(capsys, "revert", "tree") == {"version": 1, "files": [file]}


def test_a_bad_edit_is_shown_and_sets_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tree/src/sizes.cc").write_text("size_t amounts = 0;\nold\nold\n")
    assert run(["patch", "check", "demo", "tree"]) == PatchError.exit_code
    out, err = capsys.readouterr()
    assert "wide-size (src/sizes.cc): missing: its anchor is not found\n    similar: 1: size_t amounts = 0;\n" in out
    assert "anywhere (src/sizes.cc): ambiguous: it must match 1 times and matches 2 times, in lines 2, 3\n" in out
    assert "error: tree: 2 edits do not fit" in err
    states = report(capsys, "check", "demo", "tree", code=21)["edits"]
    assert [row["state"] for row in states] == ["missing", "ambiguous"]
    assert run(["patch", "apply", "demo", "tree"]) == 21
    assert not Path("tree/.macbuild-edits.json").exists()


def test_the_platform_selects_the_edits(capsys: pytest.CaptureFixture[str]) -> None:
    assert text(capsys, "check", "demo", "tree", "--platform", "linux").startswith("anywhere")
    assert text(capsys, "check", "demo", "tree", "--platform", "beos", code=PatchError.exit_code) == ""


def test_explain_shows_all_fields_of_an_edit_and_its_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert text(capsys, "explain", "demo").startswith(
        "wide-size: src/sizes.cc\n"
        "  why: Another type of the same width\n"
        "  for: macos\n"
        "  replace at anchor size_t amount\n"
        "  text:   uint64_t amount\n"
        "  no longer needed if: fixed\n"
        "  checked: 2026-11-21, demo src/sizes.cc at r1, read; once\n"
        "anywhere: src/sizes.cc\n"
    )
    Path("tree/src/sizes.cc").write_text("fixed\nold\n")
    out = text(capsys, "explain", "demo", "tree")
    assert "  state: not needed: upstream has changed: 'fixed' in line 1\n" in out
    assert "at pattern ^old$" in out
    assert "known only from a description" in out
    rows = report(capsys, "explain", "demo", "tree")["edits"]
    assert [(row["reason"], row["state"]) for row in rows] == [
        ("Another type of the same width", "not-needed"),
        ("Not needed", "applied"),
    ]


def test_new_writes_edits_that_apply_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    changed = Path("changed/src")
    changed.mkdir(parents=True)
    (changed / "sizes.cc").write_text("uint64_t amount = 0;\nold\n")
    words = ("new", "demo", "changed", "--against", "tree", "--name", "mine", "--reason", "so", "--version", "r2")
    out = text(capsys, *words)
    assert 'anchor = "size_t amount"' in out
    assert text(capsys, *words, "--output", "mine.toml") == ""
    assert Path("mine.toml").read_text() == out
    assert text(capsys, *words, "--output", "mine.toml", code=UsageError.exit_code) == ""
    assert "applied" in text(capsys, "apply", "./mine.toml", "tree")
    assert Path("tree/src/sizes.cc").read_text() == (changed / "sizes.cc").read_text()


def test_an_unknown_component_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["patch", "check", "demos", "tree"]) == PatchError.exit_code
    assert "did you mean 'demo'?" in capsys.readouterr().err


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(text(capsys, "schema"))["title"] == "macbuild edits"
