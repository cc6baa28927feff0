"""Write the lock of a project: download the sources that its recipes name, and pin them by size and sha256."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from macbuild.commands.project import Project
from macbuild.documents import place_of
from macbuild.errors import RecipeError, UnreachableError
from macbuild.events import Emit, Note, Progress
from macbuild.files import os_errors
from macbuild.recipe.lock import Lock, Pinned, SourceRef, Unpinned, source_refs
from macbuild.recipe.model import Recipe
from macbuild.recipe.release import Candidate
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.git import git_commit
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import FileSource, GitSource, Source

__all__ = ["check_pinned", "write_lock"]


def write_lock(project: Project, old: Lock, emit: Emit, *, names: Sequence[str] = (), update: bool) -> Lock:
    """Return a lock for the project's recipes, and for those of macbuild that it had pins for.

    Parameters
    ----------
    project
        Where the recipes are.
    old
        Pins that are kept where a source did not change, unless `update` is set. Local files are pinned as they are.
    emit
        Receives progress.
    names
        Pin only the sources of these components, and keep all else as it is.
    update
        Download the sources again.

    Raises
    ------
    PlanError
        There is no recipe of a name.
    RecipeError
        If a local file of a recipe does not exist.
    FetchError, IntegrityError
        If a source answers with something that is not usable. A source that cannot be reached is listed as unpinned.
    """
    recipes = project.locked_recipes(old, names)
    pinned = [entry for entry in old.pinned if names and entry.component not in recipes]
    unpinned = [entry for entry in old.unpinned if names and entry.component not in recipes]
    sources = [
        (ref, candidate, _known(project, old, ref, candidate))
        for recipe in recipes.values()
        for ref, candidate in source_refs(recipe)
    ]
    for ref, candidate, known in sources:
        if known is None:
            _check_local(project, ref, candidate)
    with os_errors("temporary files"):
        temporary = tempfile.TemporaryDirectory(prefix="macbuild-lock-")
    with temporary as folder:
        pins = _Pins(project, emit, Path(folder))
        for ref, candidate, known in sources:
            if known is not None and not update and not isinstance(candidate.fetch, FileSource):
                pinned.append(known)
                continue
            try:
                pinned.append(pins.pin(ref, candidate))
            except UnreachableError as error:
                if known is not None:
                    emit(Note("warning", f"{ref.id} keeps its pin: {error}"))
                    pinned.append(known)
                    continue
                emit(Note("warning", f"{ref.id} stays unpinned: {error}"))
                reason = "could not be reached when the lock was written"
                unpinned.append(Unpinned(**msgspec.structs.asdict(ref), reason=reason))
    return Lock(pinned=pinned, unpinned=unpinned)


def check_pinned(recipes: Mapping[str, Recipe], lock: Lock) -> None:
    """Refuse a lock in which a release of a component has sources and none of them is pinned.

    Raises
    ------
    UnreachableError
        With the first such release, and what its user can do.
    """
    for recipe in recipes.values():
        found: dict[tuple[str, str], bool] = {}
        for ref, _ in source_refs(recipe):
            place = (ref.version, ref.arch)
            found[place] = found.get(place, False) or lock.pin(ref) is not None
        for (version, arch), is_pinned in found.items():
            if not is_pinned:
                hint = f"check the address and the network, or build from a folder: --source {recipe.name}=FOLDER"
                where = f"{recipe.name} {version} {arch}"
                raise UnreachableError("no source can be reached, so none is pinned", where=where, hint=hint)


def _known(project: Project, old: Lock, ref: SourceRef, candidate: Candidate) -> Pinned | None:
    """Return the pin that a source has, or that macbuild's own lock has for the same request."""
    known = old.pin(ref)
    # A local path means another file in another recipe.
    if known is None and not isinstance(candidate.fetch, FileSource):
        known = project.shipped_lock.pin(ref)
    return known if known is not None and known.fits(candidate.fetch) else None


def _check_local(project: Project, ref: SourceRef, candidate: Candidate) -> None:
    """Refuse a local file that does not exist; it is no matter of a network that answers later."""
    if isinstance(candidate.fetch, FileSource):
        folder = project.recipes.folder(ref.component)
        if not (folder / candidate.fetch.path).exists():
            problem = f"the source {ref.source!r} is {candidate.fetch.path!r}, and there is no such file or folder"
            hint = f"correct the path, then run: {project.lock_command(ref.component)}"
            raise RecipeError(problem, where=place_of(folder / "recipe.toml", candidate.fetch.path), hint=hint)


class _Pins:
    """Pin sources. One that several components are parts of is downloaded once; `folder` holds what they share."""

    def __init__(self, project: Project, emit: Emit, folder: Path) -> None:
        self.project = project
        self.emit = emit
        self.folder = folder
        self.known: dict[str, tuple[Pin, str | None]] = {}

    def pin(self, ref: SourceRef, candidate: Candidate) -> Pinned:
        # A local path is relative to its recipe.
        key = ref.id if isinstance(candidate.fetch, FileSource) else ref.request
        pin, commit = self.known.get(key) or self._fetched(ref, candidate)
        self.known[key] = pin, commit
        at = f", commit {commit}" if commit else ""
        self.emit(Note("info", f"{ref.id} pinned: {pin.file}, {pin.size} bytes{at}"))
        facts = msgspec.structs.asdict(ref)
        return Pinned(**facts, file=pin.file, size=pin.size, sha256=pin.sha256, commit=commit)

    def _fetched(self, ref: SourceRef, candidate: Candidate) -> tuple[Pin, str | None]:
        settings = self.project.settings
        file = self.folder / "file"
        source, commit = self._resolved(ref, candidate.fetch)
        try:
            pin = fetch(
                source,
                None,
                file,
                work=self.folder / "partial",
                shared=self.folder / "shared",
                base=self.project.recipes.folder(ref.component),
                offline=settings.offline,
                mirrors=settings.mirrors,
                progress=lambda done, total: self.emit(Progress(ref.id, "downloading", done, total)),
            )
        finally:
            file.unlink(missing_ok=True)
        return pin, commit

    def _resolved(self, ref: SourceRef, source: Source) -> tuple[Source, str | None]:
        """Return a source that always gives the same bytes, and the commit that its branch or tag has now."""
        if not isinstance(source, GitSource) or source.ref is None or self.project.settings.offline:
            return source, None
        commit = git_commit(source, self.folder, lambda _, __: self.emit(Progress(ref.id, "asking", 0, None)))
        return GitSource(url=source.url, commit=commit), commit
