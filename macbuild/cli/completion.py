"""Complete words of a command line: names of components, and the values of settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from macbuild.config import Setting

__all__ = ["complete_component", "values_of"]


def complete_component(incomplete: str) -> list[str]:
    """Return the components of the project that begin with a text, or their versions after an `@`.

    Whatever is wrong with the project is an error of the command, not of the shell that completes its words.
    """
    from macbuild.commands.project import Project
    from macbuild.config import load_settings
    from macbuild.errors import MacbuildError

    name, at, _ = incomplete.partition("@")
    try:
        recipes = Project(load_settings({}, os.environ, Path.cwd()), os.environ, Path.cwd()).recipes
        if at:
            found = [f"{name}@{release.version}" for release in recipes[name].releases] if name in recipes else []
        else:
            found = list(recipes)
    except MacbuildError:
        return []
    return [word for word in found if word.startswith(incomplete)]


def values_of(entry: Setting) -> Callable[[str], list[str]] | None:
    """Return what completes the values of a setting, None if they are free."""
    if entry.name == "arch":
        from macbuild.target import Arch

        return _starting(get_args(Arch))
    if entry.name == "policy":
        from macbuild.audit.policy import BUILT_IN

        return _starting(BUILT_IN)
    return _starting(entry.choices) if entry.choices else None


def _starting(values: tuple[str, ...]) -> Callable[[str], list[str]]:
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]
