"""Find values of a recipe that are well formed, and that a build or a user of its artifacts could not use."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from macbuild.audit.catalogue import RULES
from macbuild.errors import nearest
from macbuild.recipe.model import Recipe
from macbuild.recipe.release import SLICES
from macbuild.source.fetch.sources import FileSource
from macbuild.target import macos_exists

__all__ = ["problems"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def problems(recipe: Recipe, folder: Path, project: Path) -> list[str]:
    """Return what cannot be used of a recipe, a line each.

    Parameters
    ----------
    recipe
        As it was read.
    folder
        Its folder, which paths of local sources are relative to.
    project
        The folder that local sources must be in.
    """
    found = [
        *_control_characters(msgspec.to_builtins(recipe), ""),
        *_license(recipe),
        *_places(recipe),
        *_links(recipe),
        *_exemptions(recipe),
        *_minimum_macos(recipe),
        *_local_sources(recipe, folder, project),
    ]
    if not re.fullmatch(r"https?://[^\s/]+\S*", recipe.homepage):
        found.append(f"homepage is {recipe.homepage!r}, which is not an http or https address")
    return [f"{recipe.name}: {line}" for line in dict.fromkeys(found)]


def _control_characters(data: object, where: str) -> Iterator[str]:
    if isinstance(data, str) and _CONTROL.search(data):
        yield f"{where} has a line break or another control character: {data!r}"
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _control_characters(value, f"{where}.{key}".lstrip("."))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _control_characters(value, f"{where}[{index}]")


def _license(recipe: Recipe) -> Iterator[str]:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        plain = canonicalize_license_expression(recipe.license)
    except InvalidLicenseExpression:
        yield f"license is {recipe.license!r}, which is not an SPDX expression such as 'MIT' or 'Apache-2.0 OR MIT'"
        return
    if plain != recipe.license:
        yield f"license is {recipe.license!r}: write {plain!r}"


def _leads_out(path: str) -> bool:
    return path.startswith("/") or posixpath.normpath(path).split("/")[0] == ".."


def _places(recipe: Recipe) -> Iterator[str]:
    """Yield places of files that are outside of the stage or the package."""
    rules = [(f"layouts {name}", rule) for name, layout in recipe.layouts.items() for rule in layout]
    places = [(where, rule.to) for where, rule in rules if not isinstance(rule, str)]
    for package in [recipe.every_package, *(recipe.packages or [])]:
        places += [("packages include", include.to) for include in package.include]
        places += [("packages files", rule.to) for rule in package.files]
    for where, place in places:
        if place and _leads_out(place):
            yield f"{where} puts files at {place!r}, which leads out of the artifact"


def _links(recipe: Recipe) -> Iterator[str]:
    for link in recipe.links:
        target = posixpath.join(posixpath.dirname(link.path), link.target)
        if _leads_out(link.path) or link.target.startswith("/") or _leads_out(target):
            yield f"links has {link.path!r} to {link.target!r}, which leads out of the artifact"


def _exemptions(recipe: Recipe) -> Iterator[str]:
    for exemption in recipe.audit.exempt:
        if exemption.rule not in RULES:
            yield f"audit.exempt has the unknown rule {exemption.rule!r}; {nearest(exemption.rule, list(RULES))}"


def _minimum_macos(recipe: Recipe) -> Iterator[str]:
    for release in recipe.releases:
        for part in filter(None, map(release.slice, SLICES)):
            if not macos_exists(part.minimum_macos):
                yield f"releases {release.version} has minimum_macos {part.minimum_macos!r}, which does not exist"


def _local_sources(recipe: Recipe, folder: Path, project: Path) -> Iterator[str]:
    for release in recipe.releases:
        for arch in ("any", *SLICES, "linux_x86_64"):
            for candidate in release.sources(arch):
                if isinstance(candidate.fetch, FileSource):
                    yield from _local(candidate.fetch.path, folder, project)


def _local(text: str, folder: Path, project: Path) -> Iterator[str]:
    path = folder / text
    if not path.resolve().is_relative_to(project.resolve()):
        yield f"the local source {text!r} is outside of the project, so others do not have it"
    elif not path.exists():
        yield f"the local source {text!r} does not exist"
