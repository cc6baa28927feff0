"""Test what is found in recipes that are well formed and still of no use."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from macbuild.errors import RecipeError
from macbuild.recipe.check import problems
from macbuild.recipe.load import load_recipe, load_recipes

ROOT = Path(__file__).parents[3]
Change = Callable[[dict[str, Any]], object]


def recipe() -> dict[str, Any]:
    source = {"name": "local", "layout": "all", "fetch": {"type": "file", "path": "demo.tar"}}
    return {
        "schema": 1,
        "name": "demo",
        "summary": "A demo",
        "homepage": "https://example.org",
        "license": "MIT",
        "releases": [{"version": "1.0", "arm64": {"minimum_macos": "11.0", "sources": [source]}}],
        "layouts": {"all": [{"from": "lib/*", "to": "lib/"}]},
    }


def written(tmp_path: Path, change: Change) -> Path:
    table = recipe()
    change(table)
    path = tmp_path / "recipes/demo/recipe.toml"
    path.parent.mkdir(parents=True)
    path.write_text(tomli_w.dumps(table))
    (path.parent / "demo.tar").touch()
    return path


def rule(table: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = table["layouts"]["all"][0]
    return found


def arm64(table: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = table["releases"][0]["arm64"]
    return found


def local(path: str) -> Change:
    return lambda table: arm64(table)["sources"][0]["fetch"].update(path=path)


def link(path: str, target: str) -> Change:
    return lambda table: table.update(links=[{"path": path, "target": target, "reason": "so"}])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: rule(table).update(to="../lib/"), "leads out of the artifact"),
        (lambda table: rule(table).update(to="/usr/lib/"), "leads out of the artifact"),
        (lambda table: rule(table).update(to="lib/../../x"), "leads out of the artifact"),
        (link("../libx.dylib", "libx.1.dylib"), "leads out of the artifact"),
        (link("lib/libx.dylib", "../../libx.dylib"), "leads out of the artifact"),
        (link("lib/libx.dylib", "/usr/lib/libx.dylib"), "leads out of the artifact"),
        (lambda table: table.update(summary="two\nlines"), "summary has a line break"),
        (lambda table: table.update(summary="\x1b[31mred"), "control character"),
        (lambda table: table.update(license="My Own"), "not an SPDX expression"),
        (lambda table: table.update(license="apache-2.0"), "write 'Apache-2.0'"),
        (lambda table: table.update(homepage="example.org"), "not an http or https address"),
        (lambda table: arm64(table).update(minimum_macos="99.0"), "minimum_macos '99.0', which does not exist"),
        (lambda table: arm64(table).update(minimum_macos="16.0"), "minimum_macos '16.0', which does not exist"),
        (local("none.tar"), "the local source 'none.tar' does not exist"),
        (local("/etc/passwd"), "outside of the project"),
        (local("../../../../../etc/passwd"), "outside of the project"),
    ],
)
def test_what_cannot_be_used_is_found(tmp_path: Path, change: Change, problem: str) -> None:
    path = written(tmp_path, change)
    (line,) = problems(load_recipe(path), path.parent, tmp_path)
    assert re.match(rf"{re.escape(str(path))}:\d+: ", line)
    assert problem in line


@pytest.mark.parametrize("change", [bool, local("../../README"), link("lib/libx.dylib", "../libx.1.dylib")])
def test_what_can_be_used_is_not_found(tmp_path: Path, change: Change) -> None:
    (tmp_path / "README").touch()
    path = written(tmp_path, change)
    assert problems(load_recipe(path), path.parent, tmp_path) == []


@pytest.mark.parametrize("version", ["one", "1.0\n", "1..0", "-1"])
def test_a_version_that_is_none_is_an_error(tmp_path: Path, version: str) -> None:
    with pytest.raises(RecipeError, match="version"):
        load_recipe(written(tmp_path, lambda table: table["releases"][0].update(version=version)))


def test_recipes_of_the_project_have_no_problems() -> None:
    recipes = load_recipes(ROOT / "recipes")
    assert [line for name, each in recipes.items() for line in problems(each, recipes.folder(name), ROOT)] == []
