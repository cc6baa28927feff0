"""Write the lock: bring every source that the recipes name once, and pin what came."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from macbuild.errors import UnreachableError
from macbuild.events import Emit, Note, Progress
from macbuild.fetch.providers import fetch
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
    for recipe in project.recipes.values():
        for ref, candidate in source_refs(recipe):
            kept = None if update else old.pin(ref)
            if kept is not None:
                pinned.append(kept)
                continue
            try:
                pinned.append(_pin(project, ref, candidate, emit))
            except UnreachableError as error:
                known = old.pin(ref)
                if known is not None:
                    emit(Note("warning", f"{ref.id} keeps its pin: {error}"))
                    pinned.append(known)
                    continue
                emit(Note("warning", f"{ref.id} stays unpinned: {error}"))
                reason = "could not be reached when the lock was written"
                unpinned.append(Unpinned(**msgspec.structs.asdict(ref), reason=reason))
    return Lock(pinned=pinned, unpinned=unpinned)


def _pin(project: Project, ref: SourceRef, candidate: Candidate, emit: Emit) -> Pinned:
    with tempfile.TemporaryDirectory(prefix="macbuild-lock-") as folder:
        work = Path(folder)
        pin = fetch(
            candidate.fetch,
            None,
            work / "file",
            work=work / "partial",
            base=project.recipes_folder / ref.component,
            offline=project.settings.offline,
            mirrors=project.settings.mirrors,
            progress=lambda done, total: emit(Progress(ref.id, "downloading", done, total)),
        )
    emit(Note("info", f"{ref.id} pinned: {pin.file}, {pin.size} bytes"))
    return Pinned(**msgspec.structs.asdict(ref), file=pin.file, size=pin.size, sha256=pin.sha256)
