"""Find components that need each other, which no order of building can serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from macbuild.recipe.model import Recipe
from macbuild.recipe.release import SLICES, references

__all__ = ["chain_text", "cycles"]


def chain_text(names: Sequence[str]) -> str:
    """Return `a needs b, which needs c` for names of components, each of which needs the next."""
    first, *rest = names
    return f"{first} needs " + ", which needs ".join(rest)


def cycles(recipes: Mapping[str, Recipe]) -> list[list[str]]:
    """Return the names of components that need each other, the first one again at the end; one such ring at a time.

    Other versions of a component are other nodes. A component may be its own tool, as protoc is for protobuf.
    """
    graph: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for recipe in recipes.values():
        options = recipe.build.options.values() if recipe.build else ()
        for release in recipe.releases:
            needed = graph.setdefault((recipe.name, release.version), set())
            for part in filter(None, map(release.slice, SLICES)):
                tools = {name: version for name, version in part.tools.items() if name != recipe.name}
                for table in (part.needs, tools, *(references(option.needs) for option in options)):
                    needed |= {(name, _version(recipes, name, version)) for name, version in table.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [[name for name, _ in reversed(error.args[1])]]
    return []


def _version(recipes: Mapping[str, Recipe], name: str, version: str) -> str:
    """Return the version that a reference stands for; without one it is the only release."""
    if version or name not in recipes:
        return version
    return recipes[name].releases[0].version
