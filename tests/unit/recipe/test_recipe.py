from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macbuild.errors import PlanError, RecipeError
from macbuild.recipe.load import load_recipe, load_recipes
from macbuild.recipe.model import Recipe
from tests.support.sample import Sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = Sample(tmp_path)
    sample.add("alpha", version="1.0", archs=("arm64", "x86_64"))
    sample.add("alpha", version="2.0")
    return sample


def loaded(sample: Sample) -> Recipe:
    return load_recipe(sample.recipe_path("alpha"))


def test_the_newest_release_with_the_architecture_is_chosen(sample: Sample) -> None:
    recipe = loaded(sample)
    assert recipe.release(None, "arm64").version == "2.0"
    assert recipe.release(None, "x86_64").version == "1.0"
    assert recipe.release(None, "universal2").version == "1.0"
    assert recipe.release("1", "arm64").version == "1.0"


def test_versions_are_compared_as_numbers(sample: Sample) -> None:
    sample.add("alpha", version="10.0")
    assert loaded(sample).release(None, "arm64").version == "10.0"


def test_release_without_the_slice_is_refused_with_a_choice(sample: Sample) -> None:
    with pytest.raises(PlanError, match=r"2\.0 is not published for x86_64, so universal2 cannot be made") as caught:
        loaded(sample).release("2.0", "universal2")
    assert caught.value.hint == "build alpha@1.0 for universal2"


def test_missing_architecture_is_refused_with_all_choices(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    for version in (None, "1.0"):
        with pytest.raises(PlanError) as caught:
            loaded(sample).release(version, "x86_64")
        assert caught.value.hint == "alpha can be built as 1.0 (arm64)"


@pytest.mark.parametrize("version", ["3.0", "latest", "1.x", "", "9" * 5000, "1.0\n", "-1"])
def test_unknown_version_is_refused_with_the_known_ones(sample: Sample, version: str) -> None:
    with pytest.raises(PlanError) as caught:
        loaded(sample).release(version, "arm64")
    assert caught.value.hint is not None
    assert "1.0" in caught.value.hint or "2.0" in caught.value.hint


Change = Callable[[dict[str, Any]], object]


def test_the_recipes_of_the_project_are_valid() -> None:
    recipes = load_recipes(Path(__file__).parents[3] / "recipes")
    assert {"libtorch", "onnxruntime", "onnxruntime_backend", "pytorch"} <= set(recipes)


def test_a_broken_recipe_stops_no_other(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    sample.add("beta")
    sample.recipe_path("beta").write_text("schema = 1\n")
    assert not sample.make("alpha").failed
    with pytest.raises(RecipeError, match="beta"):
        sample.plan("beta")
    with pytest.raises(RecipeError, match="beta"):
        sample.plan()
