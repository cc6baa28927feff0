"""Make the lock: download every source that the recipes name, and pin it by size and sha256."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path

import msgspec

from macbuild.commands.project import Project
from macbuild.errors import UnreachableError
from macbuild.events import Emit, Note, Progress
from macbuild.recipe.lock import Lock, Pinned, SourceRef, Unpinned, source_refs
from macbuild.recipe.release import Candidate
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.git import git_commit
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import FileSource, GitSource, Source

__all__ = ["write_lock"]


def write_lock(project: Project, old: Lock, emit: Emit, *, update: bool) -> Lock:
    """Return a lock for all recipes.

    Parameters
    ----------
    project
        Where the recipes are.
    old
        Pins that are kept where a source did not change, unless `update` is set. Local files are pinned as they are.
    emit
        Receives progress.
    update
        Download everything again.

    Raises
    ------
    FetchError, IntegrityError
        If a source answers with something that is not usable. A source that cannot be reached is listed as unpinned.
    """
    pinned: list[Pinned] = []
    unpinned: list[Unpinned] = []
    with tempfile.TemporaryDirectory(prefix="macbuild-lock-") as folder:
        pins = _Pins(project, emit, Path(folder))
        for ref, candidate in chain.from_iterable(map(source_refs, project.recipes.values())):
            known = old.pin(ref)
            if known is not None and not known.fits(candidate.fetch):
                known = None
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
