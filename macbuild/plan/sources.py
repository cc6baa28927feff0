"""The steps that fetch the source of a component, arrange it, and apply our edits to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from macbuild.data import filled
from macbuild.errors import LockError, MacbuildError, UnreachableError
from macbuild.plan.builder import PlanBuilder
from macbuild.plan.keys import data_digest, pin_digest
from macbuild.plan.model import CheckoutSpec, FetchSpec, LayoutSpec, PatchSpec, Step, UnpackSpec
from macbuild.recipe.load import Recipes
from macbuild.recipe.lock import Lock, Pinned, SourceRef, resolved, source_refs
from macbuild.recipe.model import Recipe
from macbuild.recipe.release import ANY, Candidate, Release
from macbuild.source.checkout import checkout_digest
from macbuild.source.fetch.sources import FileSource
from macbuild.store import digest
from macbuild.target import Target

__all__ = ["SourcePlanner"]


@dataclass
class SourcePlanner:
    """Adds the steps that make source trees to a plan.

    Parameters
    ----------
    lock
        The bytes that may be used.
    recipes
        What may be built, and where its edits are.
    unavailable
        Sources that failed in this run, by their id, with the error.
    folders
        Folders of the user that are used instead, by component.
    builder
        Receives the steps.
    lock_command
        Returns the command that pins the sources of a component, for hints.
    """

    lock: Lock
    recipes: Recipes
    unavailable: Mapping[str, MacbuildError]
    folders: Mapping[str, Path]
    builder: PlanBuilder
    lock_command: Callable[[str], str]

    def prebuilt(self, recipe: Recipe, release: Release, arch: str, place: str) -> tuple[FetchSpec, Step]:
        """Return where the files of one architecture come from, and the step that has arranged them.

        Raises
        ------
        LockError, UnreachableError
            If no source is pinned, or none is available.
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
            What is built from it; None for this machine.
        port
            True if what is built on this machine is the port to macOS, so that it gets the edits for that, too.

        Raises
        ------
        LockError, UnreachableError
            If no source is pinned, or none is available.
        PlanError
            If a folder of the user is not a folder.
        """
        place = f"{recipe.name}-{release.version}-source"
        if recipe.name in self.folders:
            source, arranged = self._checkout(recipe, release, place)
        else:
            source, arranged = self.prebuilt(recipe, release, ANY, place)
        linux = target is None and sys.platform != "darwin" and not port
        return source, self._patched(recipe.name, arranged, place, "linux" if linux else "macos")

    def check(self, recipe: Recipe, release: Release) -> None:
        """Refuse a release whose source is not available, before anything else is planned; errors as for `tree`."""
        if release.source and recipe.name not in self.folders:
            self._choose(recipe, release, ANY)

    def _checkout(self, recipe: Recipe, release: Release, place: str) -> tuple[FetchSpec, Step]:
        folder = self.folders[recipe.name]
        size, sha256 = checkout_digest(folder)
        # The folder's path is left out: it is the same source wherever it is.
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
        step = self.builder.add(f"{place}/checkout", "checkout", spec, {"folder": sha256}, [])
        return FetchSpec(ref, candidate, pin, ()), step

    def _arranged(self, recipe: Recipe, source: FetchSpec, place: str) -> Step:
        version, arch = source.ref.version, source.ref.arch
        names = {**recipe.exact(version).placeholders, "version": version, "arch": arch}
        rules = tuple(recipe.layout(source.candidate, names))
        links = tuple(filled(recipe.links, names))
        fetched = self.builder.add(f"{place}/fetch", "fetch", source, {"lock": pin_digest(source)}, [])
        unpacked = self.builder.add(f"{place}/unpack", "unpack", UnpackSpec(), {}, [fetched])
        layout = {"recipe": digest([data_digest(rules), data_digest(links)])}
        return self.builder.add(f"{place}/layout", "layout", LayoutSpec(rules, links), layout, [unpacked])

    def _patched(self, name: str, arranged: Step, place: str, platform: str) -> Step:
        """Return the step that edits a source for a platform, or the source as it is if nothing is to be edited."""
        folder = self.recipes.edits(name)
        if not folder.is_dir():
            return arranged
        from macbuild.source.patch.model import edits_digest, load_edits

        facts = {"edits": edits_digest(load_edits(folder), platform)}
        return self.builder.add(f"{place}/patch-{platform}", "patch", PatchSpec(name, platform), facts, [arranged])

    def _choose(self, recipe: Recipe, release: Release, arch: str) -> FetchSpec:
        """Return the source of a slice: the first in the store, else the first that is pinned and not known to fail.

        A local file or folder needs no pin.
        """
        skipped = []
        possible: list[FetchSpec] = []
        missing: list[MacbuildError] = []
        for ref, candidate in source_refs(recipe):
            if (ref.version, ref.arch) != (release.version, arch):
                continue
            pin = self._local_pin(recipe, ref, candidate) or self.lock.pin(ref)
            if pin is None:
                skipped.append(f"{ref.source} ({candidate.fetch.describe()}) is not pinned")
            elif ref.id in self.unavailable:
                error = self.unavailable[ref.id]
                missing.append(error)
                skipped.append(f"{ref.source} ({candidate.fetch.describe()}): {error}")
            else:
                usable = resolved(candidate, pin, self.lock_command(recipe.name))
                possible.append(FetchSpec(ref, usable, pin, tuple(skipped)))
        stored = (spec for spec in possible if self._is_stored(spec))
        chosen = next(stored, possible[0] if possible else None)
        if chosen is not None:
            self._remark_on(chosen)
            return chosen
        where = f"{recipe.name} {release.version} {arch}"
        if missing:
            why = "; ".join(skipped)
            raise UnreachableError(f"no source is available: {why}", where=where, hint=missing[-1].hint)
        hint = f"run: {self.lock_command(recipe.name)}"
        if arch == ANY:
            hint += f"; or use a folder of your own: --source {recipe.name}=FOLDER"
        raise LockError(f"no source is pinned: {'; '.join(skipped)}", where=where, hint=hint)

    def _local_pin(self, recipe: Recipe, ref: SourceRef, candidate: Candidate) -> Pinned | None:
        """Return what a file or folder of the project contains now; None for other sources, and if it does not exist.

        What is built follows the project's files, as it follows a recipe; the lock only says what they were.
        """
        if not isinstance(candidate.fetch, FileSource):
            return None
        from macbuild.source.fetch.local import local_pin

        now = local_pin(self.recipes.folder(recipe.name) / candidate.fetch.path)
        if now is None:
            return None
        return Pinned(**msgspec.structs.asdict(ref), file=now.file, size=now.size, sha256=now.sha256)

    def _is_stored(self, spec: FetchSpec) -> bool:
        return self.builder.store.has(digest({"kind": "fetch", "lock": pin_digest(spec)}))

    def _remark_on(self, spec: FetchSpec) -> None:
        """Say that a local source differs from the lock, which a release should not."""
        pinned = self.lock.pin(spec.ref)
        if isinstance(spec.candidate.fetch, FileSource) and (pinned is None or pinned.sha256 != spec.pin.sha256):
            command = self.lock_command(spec.ref.component)
            self.builder.remarks.append(f"{spec.ref.id} is used as it is now: {command} pins it")
