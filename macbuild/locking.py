"""Write the lock: bring every source that the recipes name once, and pin what came."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path

import msgspec

from macbuild.errors import UnreachableError
from macbuild.events import Emit, Note, Progress
from macbuild.fetch.download import Pin
from macbuild.fetch.git import git_commit
from macbuild.fetch.providers import fetch
from macbuild.fetch.sources import FileSource, GitSource, Source
from macbuild.lock import Lock, Pinned, SourceRef, Unpinned, source_refs
from macbuild.project import Project
from macbuild.recipe import Candidate

__all__ = ["write_lock"]


def write_lock(project: Project, old: Lock, emit: Emit, *, update: bool) -> Lock:
    """Return a lock for all recipes.

    Parameters
    ----------
    project
        Where the recipes are.
    old
        Pins that are kept for sources that ask for the same, unless `update` is set.
    emit
        Receives progress.
    update
        Bring everything again.

    Raises
    ------
    FetchError, IntegrityError
        If a source answers with something that is not usable. One that cannot be reached is listed as unpinned.
    """
    pinned: list[Pinned] = []
    unpinned: list[Unpinned] = []
    with tempfile.TemporaryDirectory(prefix="macbuild-lock-") as folder:
        pins = _Pins(project, emit, Path(folder))
        for ref, candidate in chain.from_iterable(map(source_refs, project.recipes.values())):
            known = old.pin(ref)
            if known is not None and not known.fits(candidate.fetch):
                known = None
            if known is not None and not update:
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


class _Pins:
    """Brings sources once each, though several components are parts of one; `folder` has what they share."""

    def __init__(self, project: Project, emit: Emit, folder: Path) -> None:
        self.project = project
        self.emit = emit
        self.folder = folder
        self.known: dict[str, tuple[Pin, str | None]] = {}

    def pin(self, ref: SourceRef, candidate: Candidate) -> Pinned:
        # What a local path means depends on the recipe.
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
                base=self.project.recipes_folder / ref.component,
                offline=settings.offline,
                mirrors=settings.mirrors,
                progress=lambda done, total: self.emit(Progress(ref.id, "downloading", done, total)),
            )
        finally:
            file.unlink(missing_ok=True)
        return pin, commit

    def _resolved(self, ref: SourceRef, source: Source) -> tuple[Source, str | None]:
        """Return a source that always gives the same, and the commit that a branch or tag is now."""
        if not isinstance(source, GitSource) or source.ref is None or self.project.settings.offline:
            return source, None
        commit = git_commit(source, self.folder, lambda _, __: self.emit(Progress(ref.id, "asking", 0, None)))
        return GitSource(url=source.url, commit=commit), commit
