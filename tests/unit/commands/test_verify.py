"""Test that a receiver sees every difference between artifacts and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from macbuild import errors
from macbuild.cli.app import run
from macbuild.commands.verify import verify_dist
from macbuild.errors import UsageError
from tests.support.sample import Sample

ALPHA = "alpha-1.0-macos-arm64"
BETA = "beta-1.0-macos-arm64"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    sample = Sample(tmp_path)
    sample.add("alpha")
    sample.add("beta")
    sample.make()
    return sample.dist


def edited(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda dist: (dist / name).write_bytes(change((dist / name).read_bytes()))


def in_manifest(old: str, new: str) -> Callable[[Path], object]:
    return edited("manifest.json", lambda data: data.replace(old.encode(), new.encode(), 1))


def other_mode(dist: Path) -> None:
    data = json.loads((dist / "manifest.json").read_bytes())
    record = data["artifacts"][0]["files"][0]
    record["mode"] = "0644" if record["mode"] == "0755" else "0755"
    (dist / "manifest.json").write_text(json.dumps(data))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "artifact is gone": (lambda dist: (dist / f"{ALPHA}.tar.gz").unlink(), "does not exist"),
    "artifact differs": (edited(f"{ALPHA}.tar.gz", lambda data: data[:-9] + b"x" + data[-8:]), "is not the file"),
    "checksum differs": (edited(f"{ALPHA}.tar.gz.sha256", lambda data: b"0" + data[1:]), "has another checksum"),
    "checksum is gone": (lambda dist: (dist / f"{ALPHA}.tar.gz.sha256").unlink(), "has another checksum"),
    "list lacks it": (edited("SHA256SUMS", lambda data: data.replace(b"alpha", b"alphb")), "does not list"),
    "SBOM differs": (edited(f"{ALPHA}.cdx.json", lambda data: data + b" "), "is not the file that the manifest lists"),
    "SBOM is gone": (lambda dist: (dist / f"{ALPHA}.cdx.json").unlink(), "is not the file that the manifest lists"),
    "another mode": (other_mode, "mode"),
    "another member": (
        in_manifest('"path": "include/', '"path": "includes/'),
        "is not one of the files that were packed",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_difference_is_found_in_its_artifact(dist: Path, damage: str) -> None:
    spoil, problem = DAMAGE[damage]
    spoil(dist)
    alpha, beta = verify_dist(dist)[0]
    assert (alpha.file, beta.file) == (f"{ALPHA}.tar.gz", f"{BETA}.tar.gz")
    assert any(problem in line for line in alpha.problems), alpha.problems
    assert beta.problems == ()


def test_what_macbuild_makes_is_right(dist: Path) -> None:
    artifacts, others = verify_dist(dist)
    assert [artifact.problems for artifact in artifacts] == [(), ()]
    assert others == []


def test_files_that_no_artifact_has_are_named(dist: Path) -> None:
    (dist / "notes.txt").touch()
    assert verify_dist(dist)[1] == ["notes.txt"]


def test_a_folder_without_a_manifest_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no manifest\.json"):
        verify_dist(tmp_path)


def test_the_command_prints_a_line_for_each_artifact(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(dist)]) == 0
    assert capsys.readouterr().out == f"right  {ALPHA}.tar.gz\nright  {BETA}.tar.gz\n"
    DAMAGE["checksum differs"][0](dist)
    assert run(["verify", str(dist)]) == errors.IntegrityError.exit_code
    out, err = capsys.readouterr()
    assert out.startswith(f"wrong  {ALPHA}.tar.gz\n       {ALPHA}.tar.gz.sha256 has another checksum\n")
    assert "1 artifact of 2 wrong" in err
    assert run(["verify", str(dist), "--json"]) == errors.IntegrityError.exit_code
    assert json.loads(capsys.readouterr().out)["artifacts"][1] == {"file": f"{BETA}.tar.gz", "problems": []}
