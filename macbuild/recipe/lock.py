"""`macbuild.lock`: every source that may be used, per architecture, by file name, size and sha256."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tomli_w
from msgspec import Meta

from macbuild.data import Data
from macbuild.documents import converted, parse_document, place, read_document
from macbuild.errors import LockError
from macbuild.files import atomic_path
from macbuild.recipe.model import Recipe
from macbuild.recipe.release import Candidate
from macbuild.source.fetch.sources import FileSource, GitSource, Source

__all__ = [
    "FORMAT",
    "Lock",
    "Pinned",
    "SourceRef",
    "Unpinned",
    "drift",
    "load_lock",
    "lock_command",
    "resolved",
    "save_lock",
    "source_refs",
]

FORMAT = 1
_HEAD = "# Written by `macbuild lock`. Change a recipe and run it again; `macbuild lock --check` compares the two.\n\n"
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
_NO_COMMIT = "the lock has no commit for the branch or tag of the recipe"
_NO_NAME = "the lock has a commit, and the recipe asks for no branch or tag"


class SourceRef(Data, frozen=True):
    """The source of a recipe that an entry is about."""

    component: Annotated[str, Meta(description="the recipe")]
    version: Annotated[str, Meta(description="the release")]
    arch: Annotated[
        Literal["any", "arm64", "x86_64", "linux_x86_64"],
        Meta(description="the architecture; `any` for what is compiled"),
    ]
    source: Annotated[str, Meta(description="the name of the source in the recipe")]
    request: Annotated[str, Meta(description="what the recipe asks for; when it changes, the pin no longer counts")]

    @property
    def id(self) -> str:
        """The name used in messages, as `libtorch 2.13.0 arm64 wheel`."""
        return f"{self.component} {self.version} {self.arch} {self.source}"


class Pinned(SourceRef, frozen=True):
    """A source and the only bytes that are accepted from it."""

    file: Annotated[str, Meta(pattern=r"^(?!(?:\.\.?|meta\.json)$)[^/\\\x00-\x1f]+$", description="name of the file")]
    size: Annotated[int, Meta(ge=0, description="in bytes")]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="64 hexadecimal digits")]
    commit: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9a-f]{40}$(?!\n)")] | None,
        Meta(description="what the branch or tag of a git source was when it was pinned; other sources have none"),
    ] = None

    def fits(self, source: Source) -> bool:
        """Return True if the entry has a commit exactly when the source is a branch or tag."""
        return (self.commit is not None) == (isinstance(source, GitSource) and source.ref is not None)


class Unpinned(SourceRef, frozen=True):
    """A source that could not be reached when the lock was written, so it is never used."""

    reason: Annotated[str, Meta(description="why it could not be reached")]


class Lock(Data, frozen=True, omit_defaults=False):
    """The whole file."""

    version: Annotated[Literal[1], Meta(description="version of this format")] = 1
    pinned: Annotated[list[Pinned], Meta(description="the sources that may be used")] = []
    unpinned: Annotated[list[Unpinned], Meta(description="the sources that could not be reached")] = []

    def pin(self, ref: SourceRef) -> Pinned | None:
        """Return the entry for exactly this source and request."""
        wanted = (ref.id, ref.request)
        return next((entry for entry in self.pinned if (entry.id, entry.request) == wanted), None)


def source_refs(recipe: Recipe) -> Iterator[tuple[SourceRef, Candidate]]:
    """Yield every source of a recipe, in order of preference within a release and architecture."""
    archs: tuple[Literal["any", "arm64", "x86_64", "linux_x86_64"], ...] = ("any", "arm64", "x86_64", "linux_x86_64")
    for release in recipe.releases:
        for arch in archs:
            for candidate in release.sources(arch):
                request = candidate.fetch.request()
                yield (
                    SourceRef(
                        component=recipe.name,
                        version=release.version,
                        arch=arch,
                        source=candidate.name,
                        request=request,
                    ),
                    candidate,
                )


def resolved(candidate: Candidate, pinned: Pinned, command: str) -> Candidate:
    """Return a source as it may be fetched: a branch or tag is replaced by the commit that is pinned.

    Parameters
    ----------
    candidate, pinned
        The source and its pin.
    command
        Pins the source again, for the hint.

    Raises
    ------
    LockError
        The entry lacks the commit, or has one and the recipe asks for no branch or tag.
    """
    source = candidate.fetch
    if not pinned.fits(source):
        problem = _NO_COMMIT if pinned.commit is None else _NO_NAME
        raise LockError(f"{problem} ({source.describe()})", where=pinned.id, hint=f"run: {command}")
    if not isinstance(source, GitSource) or pinned.commit is None:
        return candidate
    return msgspec.structs.replace(candidate, fetch=GitSource(url=source.url, commit=pinned.commit))


def lock_command(*words: str) -> str:
    """Return the command that pins sources in the lock of the current folder's project, for hints."""
    return shlex.join(["macbuild", "lock", *words])


def load_lock(path: Path, command: str = "macbuild lock") -> Lock:
    """Read a lock file.

    Parameters
    ----------
    path
        The file.
    command
        Writes this file, for hints.

    Raises
    ------
    LockError
        If it is missing, damaged, or of a version that this macbuild does not know.
    """
    try:
        return _read_lock(path)
    except LockError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise LockError("there is no lock file", where=path, hint=f"run: {command}") from error
        if isinstance(error.__cause__, OSError):
            raise
        hint = f"to pin everything again, run: {command} --update" + (f"; or {error.hint}" if error.hint else "")
        raise LockError(error.message, where=error.where, hint=hint) from error


def _read_lock(path: Path) -> Lock:
    text = read_document(path, LockError)
    if not text.strip():
        raise LockError("is empty", where=path)
    if marker := _CONFLICT.search(text):
        where = f"{path}:{text.count(chr(10), 0, marker.start()) + 1}"
        raise LockError("has the conflict markers of a merge", where=where, hint="choose one side of each conflict")
    data = parse_document(text, path, LockError)
    if data.get("version") != FORMAT:
        problem = f"lock version {data.get('version')!r}, this macbuild reads {FORMAT}"
        raise LockError(problem, where=place(path, "version"), hint="use the macbuild that wrote it")
    lock = converted(data, Lock, path, LockError)
    seen: set[str] = set()
    for kind, entries in (("pinned", lock.pinned), ("unpinned", lock.unpinned)):
        for index, entry in enumerate(entries):
            if entry.id in seen:
                where = place(path, kind, index)
                raise LockError(f"{entry.id} is listed twice", where=where, hint="keep one of the two")
            seen.add(entry.id)
    return lock


def save_lock(path: Path, lock: Lock) -> None:
    """Write a lock file atomically, entries in a fixed order so that differences are small."""
    data = msgspec.to_builtins(lock)
    for kind in ("pinned", "unpinned"):
        data[kind].sort(key=lambda row: (row["component"], row["version"], row["arch"], row["source"]))
    with atomic_path(path) as partial:
        partial.write_text(_HEAD + tomli_w.dumps(data), "utf-8")


def drift(recipes: Mapping[str, Recipe], lock: Lock, folder: Callable[[str], Path]) -> list[str]:
    """Return what differs between lock and recipes with their local files, a line each; nothing if they agree.

    `folder` returns the folder of a recipe by its name.
    """
    from macbuild.source.fetch.local import local_pin

    sources = [pair for recipe in recipes.values() for pair in source_refs(recipe)]
    wanted = {(ref.id, ref.request) for ref, _ in sources}
    have = {(entry.id, entry.request) for entry in [*lock.pinned, *lock.unpinned]}
    lines = [f"{name}: in the recipe, not in the lock ({request})" for name, request in wanted - have]
    lines += [f"{name}: in the lock, not in the recipe ({request})" for name, request in have - wanted]
    for ref, candidate in sources:
        entry = lock.pin(ref)
        if entry is not None and not entry.fits(candidate.fetch):
            lines.append(f"{ref.id}: {_NO_COMMIT if entry.commit is None else _NO_NAME} ({ref.request})")
        if entry is not None and isinstance(candidate.fetch, FileSource):
            now = local_pin(folder(ref.component) / candidate.fetch.path)
            if now is not None and now.sha256 != entry.sha256:
                lines.append(f"{ref.id}: has changed since it was pinned ({ref.request})")
    return sorted(lines)
