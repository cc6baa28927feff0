"""Test that several paths, and folders of artifacts, are audited in one report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import macbuild.audit.run as module
from macbuild import errors
from macbuild.cli.app import run
from macbuild.macho.sign import sign_bytes
from tests.support import machobytes
from tests.unit.audit.test_run import dylib, tarball

SCHEMA = json.loads((Path(module.__file__).parent / "report.schema.json").read_text())


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """Return a folder with a tarball that passes, one with an unsigned dylib, and files that are no artifacts."""
    folder = tmp_path / "dist"
    folder.mkdir()
    tarball(folder / "a-1-macos-arm64.tar.gz", {"a-1-macos-arm64/lib/libx.dylib": dylib()})
    plain = machobytes.dylib(id="@rpath/liby.dylib", minos="13.4")
    tarball(folder / "b-1-macos-arm64.tar.gz", {"b-1-macos-arm64/lib/liby.dylib": plain})
    (folder / "manifest.json").write_text("{}")
    return folder


def audited(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = run(["audit", "--json", *words])
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    return code, data


def test_each_artifact_of_a_folder_is_audited_for_itself(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = audited(str(dist), capsys=capsys)
    assert code == errors.AuditError.exit_code
    assert [(Path(each["path"]).name, each["ok"]) for each in data["reports"]] == [
        ("a-1-macos-arm64.tar.gz", True),
        ("b-1-macos-arm64.tar.gz", False),
    ]
    assert [found["file"] for found in data["reports"][1]["findings"]] == ["lib/liby.dylib"]
    assert (data["version"], data["policy"], data["ok"], data["failed"]) == (1, "release", False, [])
    (dist / "b-1-macos-arm64.tar.gz").unlink()
    code, data = audited(str(dist), capsys=capsys)
    assert (code, data["ok"], len(data["reports"])) == (0, True, 1)


def test_several_paths_are_audited_once_each(dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = tmp_path / "libx.dylib"
    single.write_bytes(dylib())
    first = dist / "a-1-macos-arm64.tar.gz"
    code, data = audited(str(single), str(first), str(first), capsys=capsys)
    assert (code, [each["path"] for each in data["reports"]]) == (0, [str(single), str(first)])


def test_a_path_that_cannot_be_read_hides_no_other(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged, missing = dist / "b-1-macos-arm64.tar.gz", dist / "c.whl"
    damaged.write_bytes(damaged.read_bytes()[:-400])
    code, data = audited(str(missing), str(dist), capsys=capsys)
    assert code == errors.ArchiveError.exit_code
    assert [each["path"] for each in data["failed"]] == [str(missing), str(damaged)]
    assert data["failed"][0]["error"] == "UsageError"
    assert [each["ok"] for each in data["reports"]] == [True]
    assert not data["ok"]


def test_text_names_each_path_and_counts_them(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", str(dist), str(dist / "manifest.json")]) == errors.UsageError.exit_code
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if not line.startswith(" ")]
    assert lines[0] == str(dist / "a-1-macos-arm64.tar.gz")
    assert lines[1].startswith("1 Mach-O file (arm64), minimum macOS 13.4: 0 errors")
    assert lines[2] == str(dist / "b-1-macos-arm64.tar.gz")
    assert lines[3].startswith("error unsigned-arm64: lib/liby.dylib")
    assert f"{dist / 'manifest.json'}: is neither a Mach-O file" in err
    assert lines[-1] == "3 paths: 1 accepted, 1 rejected, 1 not audited"


def test_libraries_beside_artifacts_are_audited_too(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dist / "lib").mkdir()
    (dist / "lib/libz.dylib").write_bytes(sign_bytes(machobytes.dylib(id="@rpath/libz.dylib"), "libz.dylib"))
    data = audited(str(dist), capsys=capsys)[1]
    assert [Path(each["path"]).name for each in data["reports"]] == [
        "dist",
        "a-1-macos-arm64.tar.gz",
        "b-1-macos-arm64.tar.gz",
    ]


def test_one_path_keeps_the_report_of_one(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a-1-macos-arm64.tar.gz", "b-1-macos-arm64.tar.gz"):
        data = audited(str(dist / name), capsys=capsys)[1]
        assert (data["path"], data["files"]) == (str(dist / name), 1)
