"""JSON schemas of what people write: recipes, settings, the lock."""

from __future__ import annotations

from typing import Any

import msgspec

from macbuild.config import Settings
from macbuild.lock import Lock
from macbuild.recipe import Recipe

__all__ = ["lock_schema", "recipe_schema", "settings_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def recipe_schema() -> dict[str, Any]:
    """Return the schema of `recipe.toml`."""
    return {"$schema": _DIALECT, "title": "macbuild recipe", **msgspec.json.schema(Recipe)}


def settings_schema() -> dict[str, Any]:
    """Return the schema of `macbuild.toml` and `[tool.macbuild]`."""
    return {"$schema": _DIALECT, "title": "macbuild settings", **msgspec.json.schema(Settings)}


def lock_schema() -> dict[str, Any]:
    """Return the schema of `macbuild.lock`."""
    return {"$schema": _DIALECT, "title": "macbuild lock", **msgspec.json.schema(Lock)}
