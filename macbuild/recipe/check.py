"""Find values of a recipe that are well formed, and that a build or a user of its artifacts could not use."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from macbuild.documents import Keys, place, strings, title
from macbuild.recipe.model import PackageFacts, Recipe
from macbuild.recipe.release import ANY, SLICES
from macbuild.source.fetch.sources import FileSource
from macbuild.target import macos_exists

__all__ = ["problems"]

Found: TypeAlias = Iterator[tuple[Keys, str]]
"""Problems, each with the key that has it."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def problems(recipe: Recipe, folder: Path, project: Path) -> list[str]:
    """Return what cannot be used of a recipe, each after its file and line.

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
        *_control_characters(msgspec.to_builtins(recipe)),
        *_license(recipe),
        *_places(recipe),
        *_links(recipe),
        *_minimum_macos(recipe),
        *_local_sources(recipe, folder, project),
    ]
    if not re.fullmatch(r"https?://[^\s/]+\S*", recipe.homepage):
        found.append((("homepage",), f"homepage is {recipe.homepage!r}, which is not an http or https address"))
    path = folder / "recipe.toml"
    return [f"{place(path, *keys)}: {line}" for line, keys in {line: keys for keys, line in found}.items()]


def _control_characters(data: object) -> Found:
    for keys, text in strings(data):
        if _CONTROL.search(text):
            yield keys, f"{title(keys)} has a line break or another control character: {text!r}"


def _license(recipe: Recipe) -> Found:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        plain = canonicalize_license_expression(recipe.license)
    except InvalidLicenseExpression:
        problem = "which is not an SPDX expression such as 'MIT' or 'Apache-2.0 OR MIT'"
        yield ("license",), f"license is {recipe.license!r}, {problem}"
        return
    if plain != recipe.license:
        yield ("license",), f"license is {recipe.license!r}: write {plain!r}"


def _leads_out(path: str) -> bool:
    return path.startswith("/") or posixpath.normpath(path).split("/")[0] == ".."


def _places(recipe: Recipe) -> Found:
    """Yield places of files that are outside of the stage or the package."""
    places: list[tuple[Keys, str]] = [
        (("layouts", name, index, "to"), rule.to)
        for name, layout in recipe.layouts.items()
        for index, rule in enumerate(layout)
        if not isinstance(rule, str)
    ]
    packages: list[tuple[tuple[str | int, ...], PackageFacts]] = [(("every_package",), recipe.every_package)]
    packages += [(("packages", index), package) for index, package in enumerate(recipe.packages or [])]
    for keys, package in packages:
        places += [((*keys, "include", index, "to"), rule.to) for index, rule in enumerate(package.include)]
        places += [((*keys, "files", index, "to"), rule.to) for index, rule in enumerate(package.files)]
    for where, path in places:
        if path and _leads_out(path):
            yield where, f"{title(where[:-2])} puts files at {path!r}, which leads out of the artifact"


def _links(recipe: Recipe) -> Found:
    for index, link in enumerate(recipe.links):
        target = posixpath.join(posixpath.dirname(link.path), link.target)
        if _leads_out(link.path) or link.target.startswith("/") or _leads_out(target):
            yield ("links", index), f"links has {link.path!r} to {link.target!r}, which leads out of the artifact"


def _minimum_macos(recipe: Recipe) -> Found:
    for index, release in enumerate(recipe.releases):
        for arch in SLICES:
            part = release.slice(arch)
            if part is not None and not macos_exists(part.minimum_macos):
                problem = f"has minimum_macos {part.minimum_macos!r}, which does not exist"
                own = release.own(arch)
                keys = [arch] if own is not None and own.minimum_macos else []
                yield ("releases", index, *keys, "minimum_macos"), f"releases {release.version} {problem}"


def _local_sources(recipe: Recipe, folder: Path, project: Path) -> Found:
    for number, release in enumerate(recipe.releases):
        for arch in (ANY, *SLICES, "linux_x86_64"):
            for index, candidate in enumerate(release.sources(arch)):
                if isinstance(candidate.fetch, FileSource):
                    keys = ["source"] if arch == ANY else [arch, "sources"]
                    problem = _local(candidate.fetch.path, folder, project)
                    if problem:
                        yield ("releases", number, *keys, index, "fetch", "path"), problem


def _local(text: str, folder: Path, project: Path) -> str | None:
    path = folder / text
    if not path.resolve().is_relative_to(project.resolve()):
        return f"the local source {text!r} is outside of the project, so others do not have it"
    return None if path.exists() else f"the local source {text!r} does not exist"
