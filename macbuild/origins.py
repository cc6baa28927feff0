"""Origins: the steps that bring the source of a component, arrange it, and apply our edits to it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from macbuild.checkout import checkout_digest
from macbuild.errors import LockError, MacbuildError, UnreachableError
from macbuild.fetch.sources import FileSource
from macbuild.graph import Graph, filled, pin_digest
from macbuild.ingredients import data_digest
from macbuild.lock import Lock, Pinned, SourceRef, resolved, source_refs
from macbuild.plan import CheckoutSpec, FetchSpec, InstallSpec, PatchSpec, Step, UnpackSpec
from macbuild.recipe import ANY, Candidate, Recipe, Release
from macbuild.store import digest
from macbuild.target import Target

__all__ = ["Origins"]


@dataclass
class Origins:
    """Adds to a graph what brings sources.

    Parameters
    ----------
    lock
        The bytes that may be used.
    recipes
        Folder of the recipes, beside which `patches/` is.
    unavailable
        Sources that failed in this run, by their id, with the error.
    folders
        Folders of the user's own that serve instead, by component.
    graph
        Receives the steps.
    """

    lock: Lock
    recipes: Path
    unavailable: Mapping[str, MacbuildError]
    folders: Mapping[str, Path]
    graph: Graph

    def prebuilt(self, recipe: Recipe, release: Release, arch: str, place: str) -> tuple[FetchSpec, Step]:
        """Return where the files of one architecture come from, and the step that has arranged them.

        Raises
        ------
        LockError, UnreachableError
            If no source is pinned, or none can be had.
        """
        source = self._choose(recipe, release, arch)
        return source, self._arranged(recipe, source, place)

    def tree(self, recipe: Recipe, release: Release, target: Target | None, *, port: bool) -> tuple[FetchSpec, Step]:
        """Return where a source that is compiled comes from, and the step that has arranged and edited it.

        Parameters
        ----------
        recipe, release
            The component.
        target
            What is built from it; None for the machine at hand.
        port
            Whether what is built on the machine at hand is the port to macOS, so that it gets the edits for that, too.

        Raises
        ------
        LockError, UnreachableError
            If no source is pinned, or none can be had.
        PlanError
            If a folder of the user's own is none.
        """
        place = f"{recipe.name}-{release.version}-source"
        if recipe.name in self.folders:
            source, arranged = self._checkout(recipe, release, place)
        else:
            source, arranged = self.prebuilt(recipe, release, ANY, place)
        linux = target is None and sys.platform != "darwin" and not port
        return source, self._patched(recipe.name, arranged, place, "linux" if linux else "macos")

    def check(self, recipe: Recipe, release: Release) -> None:
        """Refuse a release whose source cannot be had, before anything else is planned for it; errors as for `tree`."""
        if release.source and recipe.name not in self.folders:
            self._choose(recipe, release, ANY)

    def _checkout(self, recipe: Recipe, release: Release, place: str) -> tuple[FetchSpec, Step]:
        folder = self.folders[recipe.name]
        size, sha256 = checkout_digest(folder)
        # The folder's path is not told: it is the same source wherever it lies.
        request = f"checkout {recipe.name}"
        ref = SourceRef(component=recipe.name, version=release.version, arch="any", source="checkout", request=request)
        pin = Pinned(
            component=ref.component,
            version=ref.version,
            arch=ref.arch,
            source=ref.source,
            request=request,
            file=recipe.name,
            size=size,
            sha256=sha256,
        )
        candidate = Candidate(name="checkout", layout="checkout", fetch=FileSource(path=recipe.name))
        spec = CheckoutSpec(str(folder), sha256)
        step = self.graph.add(f"{place}/checkout", "checkout", spec, {"folder": sha256}, [])
        return FetchSpec(ref, candidate, pin, ()), step

    def _arranged(self, recipe: Recipe, source: FetchSpec, place: str) -> Step:
        names = {"version": source.ref.version, "arch": source.ref.arch}
        rules = tuple(filled(recipe.layouts[source.candidate.layout], names))
        links = tuple(filled(recipe.links, names))
        fetched = self.graph.add(f"{place}/fetch", "fetch", source, {"lock": pin_digest(source)}, [])
        unpacked = self.graph.add(f"{place}/unpack", "unpack", UnpackSpec(), {}, [fetched])
        layout = {"recipe": digest([data_digest(rules), data_digest(links)])}
        return self.graph.add(f"{place}/install", "install", InstallSpec(rules, links), layout, [unpacked])

    def _patched(self, name: str, arranged: Step, place: str, platform: str) -> Step:
        """Return the step that edits a source for a platform, or the source as it is if nothing is to be edited."""
        folder = self.recipes.parent / "patches" / name
        if not folder.is_dir():
            return arranged
        from macbuild.patching import edits_digest, load_edits  # noqa: PLC0415 - few components have edits

        facts = {"edits": edits_digest(load_edits(folder), platform)}
        return self.graph.add(f"{place}/patch-{platform}", "patch", PatchSpec(name, platform), facts, [arranged])

    def _choose(self, recipe: Recipe, release: Release, arch: str) -> FetchSpec:
        """Return the source that serves a slice: the first in the store, else the first that is pinned and not known
        to be out of reach.
        """  # noqa: D205 - one sentence
        passed_over = []
        possible: list[FetchSpec] = []
        missing: list[MacbuildError] = []
        for ref, candidate in source_refs(recipe):
            if (ref.version, ref.arch) != (release.version, arch):
                continue
            pin = self.lock.pin(ref)
            if pin is None:
                passed_over.append(f"{ref.source} ({candidate.fetch.describe()}) is not pinned")
            elif ref.id in self.unavailable:
                error = self.unavailable[ref.id]
                missing.append(error)
                passed_over.append(f"{ref.source} ({candidate.fetch.describe()}): {error}")
            else:
                possible.append(FetchSpec(ref, resolved(candidate, pin), pin, tuple(passed_over)))
        for spec in possible:
            if self.graph.store.has(digest({"kind": "fetch", "lock": pin_digest(spec)})):
                return spec
        if possible:
            return possible[0]
        where = f"{recipe.name} {release.version} {arch}"
        if missing:
            why = "; ".join(passed_over)
            raise UnreachableError(f"no source can be had: {why}", where=where, hint=missing[-1].hint)
        hint = "run: macbuild lock"
        if arch == ANY:
            hint += f"; or give a folder that you have: --source {recipe.name}=FOLDER"
        raise LockError(f"no source is pinned: {'; '.join(passed_over)}", where=where, hint=hint)
