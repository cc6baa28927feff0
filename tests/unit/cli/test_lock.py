"""Run `macbuild lock` as users do: each hint about a lock is a command that repairs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tomli_w

from macbuild import errors
from macbuild.cli.app import run
from macbuild.data import parse_toml
from macbuild.errors import LockError
from macbuild.recipe.lock import load_lock
from tests.support.sample import Sample, files, server, tarball, work_alone

LOCK = Path("macbuild.lock")


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    work_alone(tmp_path, monkeypatch)
    sample = Sample(tmp_path)
    sample.add("alpha")
    sample.add("beta")
    return sample


@pytest.fixture
def sample(local: Sample) -> Iterator[Sample]:
    """Yield a project whose sources are on a server: local ones need no pin."""
    with server({path.name: path.read_bytes() for path in local.archives.iterdir()}) as url:
        local.serve_only("alpha", url)
        local.serve_only("beta", url)
        yield local


def hinted(text: str) -> str:
    """Return the command that the hint of an error names."""
    (found,) = re.findall(r"^hint: .*?(macbuild [^;\n]*)", text, re.MULTILINE)
    return str(found)


def repair(command: str) -> int:
    """Run the commands of a hint and return the last exit code."""
    codes = [run(shlex.split(part)[1:]) for part in command.split(" && ")]
    return codes[-1]


def pins() -> dict[str, str]:
    return {entry.component: entry.sha256 for entry in load_lock(LOCK).pinned}


def changed(change: Callable[[dict[str, list[dict[str, object]]]], object]) -> Callable[[], object]:
    """Return a function that changes the data of the lock."""

    def write() -> None:
        data = parse_toml(LOCK.read_text(), LOCK, LockError)
        change(data)
        LOCK.write_text(tomli_w.dumps(data))

    return write


def conflict() -> None:
    text = LOCK.read_text()
    LOCK.write_text(f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> other\n")


STATES: dict[str, tuple[Callable[[], object], str]] = {
    "no lock": (LOCK.unlink, "plan alpha"),
    "no lock, checked": (LOCK.unlink, "lock --check"),
    "no lock of that name": (lambda: None, "plan alpha --lock other.lock"),
    "older version": (lambda: LOCK.write_text("version = 0\n"), "plan alpha"),
    "newer version": (lambda: LOCK.write_text("version = 2\n"), "recipes lint"),
    "no version": (lambda: LOCK.write_text("pinned = []\n"), "lock"),
    "empty": (lambda: LOCK.write_text(""), "plan alpha"),
    "empty, to be pinned": (lambda: LOCK.write_text("\n"), "lock"),
    "empty, one to be pinned": (lambda: LOCK.write_text(""), "lock --update alpha"),
    "conflict": (conflict, "plan alpha"),
    "not TOML": (lambda: LOCK.write_text("version = "), "plan alpha"),
    "not UTF-8": (lambda: LOCK.write_bytes(b"\xff"), "plan alpha"),
    "unknown key": (changed(lambda data: data["pinned"][0].update(sice=1)), "plan alpha"),
    "bad value": (changed(lambda data: data["pinned"][0].update(size=-1)), "lock --check"),
    "listed twice": (changed(lambda data: data["pinned"].append(data["pinned"][0])), "plan alpha"),
    "no pin": (changed(lambda data: data["pinned"].pop(0)), "plan alpha"),
    "no pin, checked": (changed(lambda data: data["pinned"].pop(0)), "lock --check alpha"),
    "no pin, linted": (changed(lambda data: data["pinned"].pop(0)), "recipes lint"),
    "a commit too many": (changed(lambda data: data["pinned"][0].update(commit="a" * 40)), "plan alpha"),
    "of a recipe that is gone": (changed(lambda data: data["pinned"][1].update(component="gone")), "lock --check"),
}


@pytest.mark.parametrize("state", STATES)
def test_hint_of_each_lock_error_repairs_the_lock(
    sample: Sample, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, command = STATES[state]
    whole = sample.project().lock.pinned
    spoil()
    assert run(shlex.split(command)) in {errors.LockError.exit_code, errors.RecipeError.exit_code}
    assert repair(hinted(capsys.readouterr().err)) == 0
    assert run(shlex.split(command)) == 0
    names = {"alpha"} if state == "no lock" else {"alpha", "beta"}
    written = load_lock(Path("other.lock") if "other.lock" in command else LOCK).pinned
    assert [entry for entry in written if entry.component in names] == [
        entry for entry in whole if entry.component in names
    ]


def test_hint_for_changed_bytes_updates_only_that_pin(local: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tarball(files("alpha", "arm64", salt=b"changed by the vendor"))
    with server({"alpha-1.0-arm64.tar.gz": archive}) as url:
        local.serve_first("alpha", url)
        local.sources("alpha").pop()
        before = local.project().lock
        local.recipe_path("alpha").write_text(tomli_w.dumps(local.recipes["alpha"]))
        assert run(["build", "alpha"]) == errors.IntegrityError.exit_code
        command = hinted(capsys.readouterr().err)
        assert command == "macbuild lock --update alpha"
        assert repair(command) == 0
        assert run(["build", "alpha"]) == 0
    assert [entry for entry in load_lock(LOCK).pinned if entry.component == "beta"] == [
        entry for entry in before.pinned if entry.component == "beta"
    ]


def test_lock_outside_a_project_names_the_command_that_makes_one(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del sample
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run(["lock"]) == errors.UsageError.exit_code
    assert list(elsewhere.iterdir()) == []
    assert repair(hinted(capsys.readouterr().err)) == 0
    assert run(["lock"]) == 0


def test_names_pin_only_these_components(local: Sample) -> None:
    complete = pins()
    LOCK.unlink()
    assert run(["lock", "beta"]) == 0
    assert pins() == {"beta": complete["beta"]}
    assert run(["lock"]) == 0
    assert pins() == complete
    for name in ("alpha", "beta"):
        (local.archives / f"{name}-1.0-arm64.tar.gz").write_bytes(b"changed")
    assert run(["lock", "--update", "beta"]) == 0
    assert pins()["alpha"] == complete["alpha"]
    assert pins()["beta"] != complete["beta"]
    assert run(["lock", "gamma"]) == errors.PlanError.exit_code


def test_pin_of_a_component_of_macbuild_is_taken_over(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = [entry for entry in sample.project().lock.pinned if entry.component == "zlib"]
    assert run(["lock", "zlib", "--offline"]) == 0
    assert [entry for entry in load_lock(LOCK).pinned if entry.component == "zlib"] == shipped
    assert run(["lock", "--offline"]) == 0
    assert set(pins()) == {"alpha", "beta", "zlib"}
    assert run(["lock", "--check"]) == 0
    assert capsys.readouterr().out == ""


def test_path_that_does_not_exist_is_an_error(local: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    before = LOCK.read_bytes()
    source = local.sources("alpha")[0]
    right = source["fetch"]["path"]
    source["fetch"]["path"] = "../../archvies"
    local.recipe_path("alpha").write_text(tomli_w.dumps(local.recipes["alpha"]))
    assert run(["lock"]) == errors.RecipeError.exit_code
    err = capsys.readouterr().err
    assert f"{local.recipe_path('alpha')}:13: the source 'local' is '../../archvies', and there is no such" in err
    assert LOCK.read_bytes() == before
    source["fetch"]["path"] = right
    local.recipe_path("alpha").write_text(tomli_w.dumps(local.recipes["alpha"]))
    assert repair(hinted(err)) == 0


def test_named_component_that_cannot_be_reached_is_an_error(local: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    with server({}) as url:
        local.serve_first("alpha", url)
        local.sources("alpha").pop()
        local.recipe_path("alpha").write_text(tomli_w.dumps(local.recipes["alpha"]))
        LOCK.unlink()
        assert run(["lock"]) == 0
        assert [entry.id for entry in load_lock(LOCK).unpinned] == ["alpha 1.0 arm64 remote"]
        assert run(["lock", "--check"]) == 0
        assert run(["lock", "beta"]) == 0
        assert run(["lock", "alpha"]) == errors.UnreachableError.exit_code
    assert "alpha 1.0 arm64: no source can be reached" in capsys.readouterr().err
    assert set(pins()) == {"beta"}
