"""The files of a recipe that a component is built from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from macbuild.errors import RecipeError
from macbuild.files import os_errors

__all__ = ["input_files", "inputs_digest", "matching"]


_MAX_INPUTS = 10_000


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return what a recipe's pattern matches below a folder, sorted; a `RecipeError` if it is none."""
    try:
        return sorted(folder.glob(pattern))
    except (ValueError, NotImplementedError) as error:  # pathlib raises the second for an absolute pattern
        raise RecipeError(f"{pattern!r} is not a pattern: {error}", where=folder) from error


def input_files(root: Path, folder: Path, globs: Sequence[str]) -> list[Path]:
    """Return the files that a component is built from, sorted.

    Parameters
    ----------
    root
        The folder of all recipes.
    folder
        The folder of the component.
    globs
        Patterns below it; one that begins with `../` leads to what lies beside it.

    Raises
    ------
    RecipeError
        If a pattern leads out of the recipes, matches nothing, or all match far too much.
    """
    found: set[Path] = set()
    for glob in globs:
        pattern, base = glob, folder
        while pattern.startswith("../") and base != root:
            pattern, base = pattern.removeprefix("../"), base.parent
        if ".." in pattern.split("/") or pattern.startswith("/"):
            raise RecipeError(f"{glob!r} leads out of the recipes", where=folder, hint="write src/* or ../other/src/*")
        matches = {path for path in matching(base, pattern) if path.is_file() and "__pycache__" not in path.parts}
        if not matches:
            raise RecipeError(f"the input {glob!r} matches nothing", where=folder)
        found |= matches
        if len(found) > _MAX_INPUTS:
            raise RecipeError(f"the inputs are more than {_MAX_INPUTS} files", where=folder)
    return sorted(found)


def inputs_digest(root: Path, folder: Path, globs: Sequence[str]) -> tuple[int, str]:
    """Return the total size in bytes of a component's input files, and a sha256 over their paths and contents."""
    hasher = hashlib.sha256()
    size = 0
    for path in input_files(root, folder, globs):
        with os_errors(path):
            data = path.read_bytes()
        size += len(data)
        name = os.path.relpath(path, folder.parent)
        hasher.update(f"{name}\0{len(data)}\0".encode() + data)
    return size, hasher.hexdigest()
