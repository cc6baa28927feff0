"""Complete a recipe as it is written: merge what is stated once for several releases, packages or components."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from macbuild.data import PLACEHOLDER, Data, filled
from macbuild.documents import load_document, place, place_of
from macbuild.errors import RecipeError, nearest
from macbuild.recipe.model import LICENSES, Include, LayoutRule, Package, Recipe
from macbuild.recipe.options import Option
from macbuild.recipe.release import (
    ANY,
    SLICES,
    ArchFacts,
    Candidate,
    EveryRelease,
    Name,
    Release,
    ReleaseFacts,
    Text,
    with_version,
)

__all__ = ["Shared", "complete"]


class Shared(Data, frozen=True):
    """Facts that several recipes have in common; the recipe's own layouts, definitions and options override them."""

    every_release: EveryRelease = EveryRelease()
    releases: Annotated[list[Release], Meta(min_length=1)] = msgspec.field(default_factory=list)
    layouts: dict[Name, list[LayoutRule | Name]] = {}
    definitions: dict[Text, str] = {}
    options: dict[Name, Option] = {}


def complete(recipe: Recipe, path: Path) -> Recipe:
    """Return a recipe in which every release and package has all of its facts, with placeholders replaced.

    Parameters
    ----------
    recipe
        As it is written.
    path
        Its file, for the shared file and for errors.

    Raises
    ------
    RecipeError
        If the shared file cannot be read or contradicts the recipe, or a placeholder is unknown.
    """
    if recipe.shared:
        recipe = _with_shared(recipe, load_document(path.parent / recipe.shared, Shared, RecipeError), path)
    if not recipe.releases:
        raise RecipeError(
            "there are no releases", where=place(path, "releases"), hint="add [[releases]] with a version"
        )
    releases = [_release(recipe, release, path) for release in recipe.releases]
    packages = recipe.packages
    if packages is not None:
        packages = [_package(recipe, package) for package in packages]
    return replace(recipe, releases=releases, packages=packages)


def _with_shared(recipe: Recipe, shared: Shared, path: Path) -> Recipe:
    if recipe.releases and shared.releases:
        where = place(path, "releases")
        raise RecipeError(f"the releases are also in {recipe.shared}", where=where, hint="keep them in one of the two")
    build = recipe.build and replace(
        recipe.build,
        definitions={**shared.definitions, **recipe.build.definitions},
        options={**shared.options, **recipe.build.options},
    )
    return replace(
        recipe,
        releases=recipe.releases or shared.releases,
        every_release=_over(recipe.every_release, shared.every_release),
        layouts={**shared.layouts, **recipe.layouts},
        build=build,
    )


def _release(recipe: Recipe, release: Release, path: Path) -> Release:
    """Return a release with what all have in common, its architectures, and sources without placeholders."""
    index = recipe.releases.index(release)
    release = _over(release, recipe.every_release)
    if release.archs is not None and recipe.build is None:
        where = place(path, "releases", index, "archs")
        raise RecipeError("archs is for what is built; what is repackaged has those with sources", where=where)
    archs = release.archs
    if archs is None:
        archs = [arch for arch in SLICES if recipe.build or release.own(arch)]
    names = {"homepage": recipe.homepage, "version": release.version, **release.placeholders}
    linux = release.linux_x86_64
    return replace(
        release,
        **_facts(release, release.version),
        source=_fetched(release.source, {**names, "arch": ANY}, path),
        archs=archs,
        arm64=_own(release.arm64, release.version, {**names, "arch": "arm64"}, path),
        x86_64=_own(release.x86_64, release.version, {**names, "arch": "x86_64"}, path),
        linux_x86_64=linux and replace(linux, sources=_fetched(linux.sources, {**names, "arch": "x86_64"}, path)),
    )


_Release = TypeVar("_Release", bound=EveryRelease)


def _over(own: _Release, every: EveryRelease) -> _Release:
    """Return facts of a release merged with weaker ones."""
    facts = own.over(every)
    table = {key: getattr(facts, key) for key in ReleaseFacts.__struct_fields__}
    return replace(own, **table, source=own.source or every.source, archs=own.archs or every.archs)


def _facts(facts: ReleaseFacts, version: str) -> dict[str, Any]:
    """Return facts by field, with `{version}` replaced."""
    table = {key: getattr(facts, key) for key in ReleaseFacts.__struct_fields__}
    return {key: with_version(value, version) if isinstance(value, list) else value for key, value in table.items()}


def _own(own: ArchFacts | None, version: str, names: Mapping[str, str], path: Path) -> ArchFacts | None:
    return own and replace(own, **_facts(own, version), sources=_fetched(own.sources, names, path))


def _fetched(candidates: list[Candidate], names: Mapping[str, str], path: Path) -> list[Candidate]:
    """Return sources without placeholders in what is fetched."""
    found = []
    for candidate in candidates:
        for name in PLACEHOLDER.findall(msgspec.json.encode(candidate.fetch).decode()):
            if name not in names:
                hint = nearest(name, sorted(names))
                where = place_of(path, f"{{{name}}}")
                raise RecipeError(f"the source {candidate.name!r} has the unknown {{{name}}}", where=where, hint=hint)
        try:
            (fetch,) = filled([candidate.fetch], names)
        except msgspec.ValidationError as error:
            where = place_of(path, candidate.name)
            raise RecipeError(f"the source {candidate.name!r}: {error}", where=where) from error
        found.append(replace(candidate, fetch=fetch))
    return found


def _package(recipe: Recipe, package: Package) -> Package:
    """Return a package with what all have in common, its places below its prefix."""
    every = recipe.every_package

    def below(rules: list[Include] | list[LayoutRule]) -> list[Include | LayoutRule]:
        return [replace(rule, to=package.prefix + rule.to) for rule in rules]

    return replace(
        package,
        name=package.name or every.name or recipe.name,
        licenses=package.prefix + (package.licenses or every.licenses or LICENSES),
        rpaths=[*package.rpaths, *every.rpaths],
        include=below([*every.include, *package.include]),
        files=below([*every.files, *package.files]),
    )
