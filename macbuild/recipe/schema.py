"""JSON schemas of what people write: recipes, settings, the lock, edits."""

from __future__ import annotations

from typing import Any

from macbuild.config import Settings, settings_table
from macbuild.data import schema_of
from macbuild.recipe.lock import Lock
from macbuild.recipe.model import Recipe
from macbuild.source.patch.model import EditFile

__all__ = ["edits_schema", "lock_schema", "recipe_schema", "settings_schema"]


def recipe_schema() -> dict[str, Any]:
    """Return the schema of `recipe.toml`."""
    return schema_of(Recipe, "macbuild recipe")


def settings_schema() -> dict[str, Any]:
    """Return the schema of `macbuild.toml` and `[tool.macbuild]`."""
    schema = schema_of(Settings, "macbuild settings")
    properties = schema["$defs"]["Settings"]["properties"]
    for entry in settings_table():
        properties[entry.name]["description"] = entry.help
    return schema


def lock_schema() -> dict[str, Any]:
    """Return the schema of `macbuild.lock`."""
    return schema_of(Lock, "macbuild lock")


def edits_schema() -> dict[str, Any]:
    """Return the schema of the files in `patches/<component>/`."""
    return schema_of(EditFile, "macbuild edits")
