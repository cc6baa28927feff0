"""Tell what of a component can be built here: plan every release for every architecture, and keep the reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from macbuild.commands.project import Project
from macbuild.errors import MacbuildError
from macbuild.recipe.lock import Pinned, SourceRef, source_refs
from macbuild.recipe.model import Recipe
from macbuild.recipe.release import Candidate
from macbuild.source.fetch.sources import FileSource
from macbuild.target import Arch

__all__ = ["Buildable", "KnownSource", "buildable", "known_sources"]

_ARCHS: tuple[Arch, ...] = ("arm64", "x86_64", "universal2")


@dataclass(frozen=True)
class Buildable:
    """A release for one architecture, and why it cannot be built here; `published` is false if it has no such files.

    `remarks` say which options are left out because something that they need is not available.
    """

    version: str
    arch: Arch
    published: bool
    problem: MacbuildError | None
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class KnownSource:
    """A source of a recipe with its pin, or the reason why it has none. A `local` one is used as it is now."""

    ref: SourceRef
    candidate: Candidate
    pin: Pinned | None
    reason: str | None
    local: bool


def buildable(project: Project, recipe: Recipe) -> list[Buildable]:
    """Return whether each release of a recipe can be built for each architecture of macOS, with what is here.

    Nothing is fetched: a pinned source counts as available. A release that no artifact is made from, because others
    are built from its source or tests use it, is left out.
    """
    planner = replace(project.planner(), refuse=False)
    rows = []
    for release in recipe.releases:
        for arch in _ARCHS if release.archs else ():
            request = msgspec.structs.replace(project.request([f"{recipe.name}@{release.version}"]), arch=arch)
            remarks: tuple[str, ...] = ()
            problem = None
            try:
                remarks = planner.plan(request).remarks
            except MacbuildError as error:
                problem = error
            rows.append(Buildable(release.version, arch, release.serves(arch), problem, remarks))
    return rows


def known_sources(project: Project, recipe: Recipe) -> list[KnownSource]:
    """Return the sources of a recipe, in order of preference within a release and architecture."""
    reasons = {(entry.id, entry.request): entry.reason for entry in project.lock.unpinned}
    found = []
    for ref, candidate in source_refs(recipe):
        fetch = candidate.fetch
        local = isinstance(fetch, FileSource) and (project.recipes.folder(recipe.name) / fetch.path).exists()
        found.append(
            KnownSource(ref, candidate, project.lock.pin(ref), reasons.get((ref.id, ref.request)), local=local)
        )
    return found
