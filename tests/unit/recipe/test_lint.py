"""Test that planted repetitions of each kind in recipes are found, and that the project's recipes have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from macbuild.cli.app import application
from macbuild.recipe.lint import repetitions
from macbuild.recipe.load import load_recipes, recipe_paths
from tests.support.sample import Sample

GIT: dict[str, Any] = {"name": "git", "layout": "files", "fetch": {"type": "git", "ref": "r1"}}
ROOT = Path(__file__).parents[3]
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    """Return a project without repetitions: a plug-in with two packages and two releases, and two libraries."""
    sample = Sample(tmp_path)
    sample.add_built("lib", {"CMakeLists.txt": ""}, facts={"minimum_macos": "12.0"}, packages=[])
    sample.add_built("many", {"CMakeLists.txt": ""}, facts={"minimum_macos": "12.0"}, packages=[])
    sample.recipes["many"]["releases"] = [{"version": "1.0"}, {"version": "2.0"}]
    fetch = {"type": "sdist", "package": "plug", "version": "5.6"}
    source = {"name": "index", "layout": "files", "folder": "plug-{package_version}", "fetch": fetch}
    sample.recipes["plug"] = {
        **sample.recipes["lib"],
        "name": "plug",
        "layouts": {"files": [{"from": "{folder}/*", "to": ""}]},
        "build": {"inputs": ["CMakeLists.txt", "x.py"]},
        "every_release": {"needs": ["lib"], "source": [source]},
        "releases": [
            {"version": "1.0", "arm64": {"needs": ["many@1.0"]}, "x86_64": {"needs": ["many@2.0"]}},
            {"version": "3.0", "needs": ["many@2.0"]},
        ],
        "every_package": {"name": "plug-in", "rpaths": ["@loader_path/../lib"]},
        "packages": [{"kind": "tarball"}, {"kind": "wheel", "prefix": "top/"}],
    }
    folder = sample.recipe_path("plug").parent
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    return sample


def found(sample: Sample) -> list[str]:
    for name, data in sample.recipes.items():
        sample.recipe_path(name).write_text(tomli_w.dumps(data))
    return repetitions(sample.recipe_path("plug"), load_recipes(sample.root / "recipes"))


def release(data: dict[str, Any], index: int = 0) -> dict[str, Any]:
    facts: dict[str, Any] = data["releases"][index]
    return facts


def include(component: str, source: str) -> dict[str, str]:
    return {"component": component, "from": source, "to": "x/"}


def test_recipe_without_repetitions_passes(sample: Sample) -> None:
    assert found(sample) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda data: release(data)["arm64"].update(needs=["many@2.0"]),
            "states needs 'many@2.0' for both architectures",
        ),
        (
            lambda data: [release(data)[arch].update(minimum_macos="13.0") for arch in ("arm64", "x86_64")],
            "states minimum_macos '13.0' for both architectures: state it once, on the release",
        ),
        (lambda data: release(data)["arm64"].update(tools=["lib@1.0"]), "write 'lib'"),
        (lambda data: release(data)["arm64"]["needs"].append("lib"), "again, which every_release states"),
        (lambda data: release(data, 1)["needs"].append("lib"), "again, which every_release states"),
        (lambda data: release(data).update(needs=["many@1.0"]), "again, which releases 1.0 states"),
        (lambda data: [row.update(trees=["lib"]) for row in data["releases"]], "all releases state trees 'lib'"),
        (
            lambda data: [row.update(trees=[f"many@{row['version']}"]) for row in data["releases"]],
            "all releases state trees 'many@{version}'",
        ),
        (
            lambda data: release(data, 1).update(needs=["many"]),
            "it has several releases: 1.0, 2.0",
        ),
        (lambda data: release(data, 1).update(needs=["mani"]), "for which there is no recipe; did you mean 'many'?"),
        (lambda data: release(data, 1).update(archs=["x86_64", "arm64"]), "releases 3.0 archs is the default"),
        (lambda data: release(data, 1).update(minimum_macos="11.0"), "releases 3.0 minimum_macos is the default"),
        (lambda data: data["build"].update(project=""), "build.project is the default"),
        (lambda data: release(data, 1).update(tools=[]), "releases[1].tools is the default"),
        (
            lambda data: data["every_release"]["source"].append(
                {
                    "name": "w",
                    "layout": "files",
                    "fetch": {"type": "git", "url": "https://example.org/x.git", "ref": "r"},
                }
            ),
            "'https://example.org/x.git' repeats 'https://example.org': write {homepage}",
        ),
        (lambda data: data["every_release"]["source"][0].update(folder="plug-5.6"), "write {package_version}"),
        (lambda data: data["layouts"]["files"].append({"from": "a-5.6", "to": "a"}), "write {package_version}"),
        (lambda data: data["layouts"]["files"].append({"from": "a-3.0", "to": "a"}), "'a-3.0 a' repeats '3.0'"),
        (lambda data: data["build"]["inputs"].append("CMakeLists.txt"), "build.inputs[2] is listed twice"),
        (lambda data: data["packages"][0].update(name="plug-in"), "packages tarball states name 'plug-in' again"),
        (lambda data: data["every_package"].update(name="plug"), "every_package name is the default"),
        (lambda data: data["packages"][1].update(licenses="licenses/"), "packages wheel licenses is the default"),
        (
            lambda data: [package.update(rpaths=["@loader_path"]) for package in data["packages"]],
            "all packages state rpaths '@loader_path': state it once, in every_package",
        ),
        (
            lambda data: data["packages"][0].update(include=[include("lib", "share/licenses/**/*")]),
            "the licences of lib are listed, which are packed without that",
        ),
    ],
)
def test_planted_repetition_is_found(sample: Sample, change: Change, line: str) -> None:
    change(sample.recipes["plug"])
    assert any(line in text for text in found(sample)), found(sample)


def test_needless_version_in_an_option_is_found(sample: Sample) -> None:
    sample.recipes["plug"]["build"]["options"] = {"fast": {"summary": "go fast", "needs": ["lib@1.0"]}}
    (line,) = found(sample)
    text = sample.recipe_path("plug").read_text()
    number = text[: text.index("lib@1.0")].count("\n") + 1
    problem = "the option fast needs has 'lib@1.0', and it has no other release: write 'lib'"
    assert line == f"{sample.recipe_path('plug')}:{number}: {problem}"


def test_recipes_of_the_project_have_no_repetitions() -> None:
    recipes = load_recipes(ROOT / "recipes")
    assert [line for path in recipe_paths(ROOT / "recipes") for line in repetitions(path, recipes)] == []


def test_lint_command_fails_with_the_repetitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    monkeypatch.chdir(tmp_path)
    arguments = ["recipes", "lint", "--recipes", str(tmp_path / "recipes")]
    assert CliRunner().invoke(application(), arguments).exit_code == 0
    sample.recipes["alpha"]["links"] = []
    sample.write()
    answer = CliRunner().invoke(application(), arguments)
    assert answer.exit_code != 0
    assert f"{sample.recipe_path('alpha')}:6: links is the default" in answer.output
