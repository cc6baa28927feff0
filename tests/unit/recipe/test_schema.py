from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from macbuild.data import parse_toml
from macbuild.errors import RecipeError
from macbuild.recipe.schema import lock_schema, recipe_schema, settings_schema

ROOT = Path(__file__).parents[3]


def read(path: Path) -> dict[str, Any]:
    return parse_toml(path.read_text(), path, RecipeError)


def test_schemas_are_valid() -> None:
    for schema in (recipe_schema(), settings_schema(), lock_schema()):
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", sorted(ROOT.glob("recipes/*/*/recipe.toml")), ids=lambda path: path.parent.name)
def test_the_recipes_of_the_project_follow_the_schema(path: Path) -> None:
    jsonschema.validate(read(path), recipe_schema())


def test_the_lock_of_the_project_follows_the_schema() -> None:
    jsonschema.validate(read(ROOT / "macbuild.lock"), lock_schema())


@pytest.mark.parametrize("change", [{"nmae": 1}, {"schema": 2}, {"name": "A"}, {"releases": []}])
def test_the_schema_refuses_what_the_reader_refuses(change: dict[str, object]) -> None:
    data = {**read(ROOT / "recipes/prebuilt/libtorch/recipe.toml"), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, recipe_schema())


def test_settings_with_an_unknown_key_do_not_follow_the_schema() -> None:
    jsonschema.validate({"arch": "arm64", "mirrors": ["x"]}, settings_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"arhc": "arm64"}, settings_schema())
