"""Make projects and components as users do."""

from __future__ import annotations

from pathlib import Path

import pytest

from macbuild import errors
from macbuild.cli.app import run
from macbuild.commands.project import Project
from macbuild.config import Settings, bundled, load_settings
from tests.support.sample import work_alone

INCLUDED = ["CMakeLists.txt", "LICENSE", "recipe.toml", "src/check.c", "src/hello.c", "src/hello.h"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work_alone(tmp_path, monkeypatch)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_makes_a_project_that_settings_are_read_from(folder: Path) -> None:
    assert run(["init"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "macbuild.toml", "recipes"]
    assert load_settings({}, {}, folder) == Settings()
    assert Project(Settings(), {}, folder).root == folder
    assert run(["recipes", "lint"]) == 0


def test_init_keeps_a_gitignore(folder: Path) -> None:
    (folder / ".gitignore").write_text("mine\n")
    assert run(["init"]) == 0
    assert (folder / ".gitignore").read_text() == "mine\n"


def test_init_makes_a_folder_that_is_named(folder: Path) -> None:
    assert run(["init", "a/b"]) == 0
    assert (folder / "a/b/recipes").is_dir()


@pytest.mark.parametrize("name", ["recipes", "macbuild.toml"])
def test_init_overwrites_nothing(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / name).write_text("# mine")
    assert run(["init"]) == errors.UsageError.exit_code
    assert contents(folder) == {name: b"# mine"}
    assert f"{name} is there already" in capsys.readouterr().err


def test_new_recipe_lints_and_is_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init"]) == 0
    assert run(["recipes", "new", "hello"]) == 0
    assert sorted(contents(folder / "recipes/hello")) == INCLUDED
    assert run(["recipes", "lint"]) == 0
    assert run(["lock", "--check"]) == 0
    capsys.readouterr()
    assert run(["plan", "--arch", "arm64"]) == 0
    out = capsys.readouterr().out
    assert "hello-0.1.0-macos-arm64/pack" in out
    assert "libtorch" not in out


def test_new_recipe_overwrites_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init"]) == 0
    assert run(["recipes", "new", "hello"]) == 0
    before = contents(folder)
    for name in ("hello", "Hello", "../hello", "1hello", ""):
        assert run(["recipes", "new", name]) == errors.UsageError.exit_code, name
    assert contents(folder) == before
    capsys.readouterr()
    assert run(["recipes", "new", "zlib"]) == 0
    assert "zlib replaces the component of this name" in capsys.readouterr().err


def test_first_recipe_goes_into_the_folder_of_the_settings(folder: Path) -> None:
    (folder / "macbuild.toml").write_text('recipes = "components"\n')
    assert run(["recipes", "new", "hello"]) == 0
    assert (folder / "components/hello/recipe.toml").is_file()
    assert run(["recipes", "lint"]) == 0


def test_new_recipe_outside_a_project_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(bundled("recipes").iterdir())
    assert run(["recipes", "new", "hello"]) == errors.UsageError.exit_code
    assert "hint: make a project with: macbuild init" in capsys.readouterr().err
    assert list(folder.iterdir()) == []
    assert sorted(bundled("recipes").iterdir()) == before
