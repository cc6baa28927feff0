"""Test that components which need each other are an error that names the way around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from macbuild.cli.app import application
from macbuild.cli.session import CommandEndedError
from macbuild.errors import RecipeError
from macbuild.recipe.cycles import cycles
from macbuild.recipe.load import load_recipes
from tests.support.sample import Sample

FILES = {"CMakeLists.txt": "project(x)\n"}


def chain(tmp_path: Path, key: str = "needs", **needs: str) -> Sample:
    sample = Sample(tmp_path / "project")
    for name, need in needs.items():
        facts: dict[str, Any] = {key: [need]} if need else {}
        sample.add_built(name, FILES, facts=facts)
    return sample


@pytest.mark.parametrize("key", ["needs", "tools"])
def test_planning_a_cycle_names_the_way_around(tmp_path: Path, key: str) -> None:
    sample = chain(tmp_path, key, alpha="beta", beta="gamma", gamma="alpha")
    first = {"needs": "beta", "tools": "gamma"}[key]  # a tool's need is one of this machine
    ring = {"beta": "gamma", "gamma": "alpha", "alpha": "beta"}
    second, third = ring[first], ring[ring[first]]
    with pytest.raises(RecipeError) as caught:
        sample.plan("beta")
    assert caught.value.message == f"needs itself: {first} needs {second}, which needs {third}, which needs {first}"
    assert caught.value.where == f"{sample.recipe_path(first)}:11"
    assert caught.value.hint == "take one of these needs out of its recipe"


def test_a_component_that_needs_itself_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="needs itself: alpha needs alpha"):
        chain(tmp_path, alpha="alpha").plan("alpha")


def test_a_need_of_many_is_no_cycle(tmp_path: Path) -> None:
    sample = chain(tmp_path, alpha="gamma", beta="gamma", gamma="")
    assert {"alpha", "beta", "gamma"} <= {step.partition("-")[0] for step in sample.plan("alpha", "beta").steps}


@pytest.mark.parametrize("command", [["all", "--arch", "arm64"], ["recipes", "lint"]])
def test_commands_report_a_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    sample = chain(tmp_path, alpha="beta", beta="alpha")
    monkeypatch.chdir(sample.root)
    answer = CliRunner().invoke(application(), command)
    assert isinstance(answer.exception, CommandEndedError)
    assert isinstance(answer.exception.error, RecipeError)
    assert f"{sample.recipe_path('alpha')}:11: " in f"{answer.output} {answer.exception}"
    assert "alpha needs beta, which needs alpha" in f"{answer.output} {answer.exception}"


@pytest.mark.parametrize("key", ["needs", "tools"])
def test_lint_finds_a_cycle(tmp_path: Path, key: str) -> None:
    sample = chain(tmp_path, key, alpha="beta", beta="gamma", gamma="beta")
    (ring,) = cycles(load_recipes(sample.root / "recipes"))
    assert ring in (["beta", "gamma", "beta"], ["gamma", "beta", "gamma"])


def test_lint_finds_no_cycle_in_the_bundled_recipes() -> None:
    assert cycles(load_recipes(Path(__file__).parents[3] / "recipes")) == []
