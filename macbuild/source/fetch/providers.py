"""Fetch the bytes of a source of any kind: mirrors first, then the source itself, checked against the pin."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from macbuild.errors import FetchError, FileError, MacbuildError, NoSpaceError, UnreachableError
from macbuild.events import Meter, silent, throttled
from macbuild.files import atomic_path, copy_file, hash_file, os_errors, remove_tree
from macbuild.source.fetch.debian import fetch_debian
from macbuild.source.fetch.download import Patience, Pin, check_pin, download
from macbuild.source.fetch.git import fetch_git
from macbuild.source.fetch.local import packed_name
from macbuild.source.fetch.packages import fetch_npm, fetch_sdist, fetch_wheel
from macbuild.source.fetch.sources import (
    DebianSource,
    FileSource,
    GitSource,
    NpmSource,
    SdistSource,
    Source,
    UrlSource,
    WheelSource,
)
from macbuild.source.fetch.trees import folder_nodes, write_tar

__all__ = ["LIMIT", "fetch"]

LIMIT = 8 << 30  # bytes of a source that is not pinned yet


def fetch(
    source: Source,
    pin: Pin | None,
    destination: Path,
    *,
    work: Path,
    base: Path,
    offline: bool = False,
    mirrors: Sequence[str] = (),
    progress: Meter = silent,
    limit: int = LIMIT,
    patience: Patience | None = None,
    shared: Path | None = None,
) -> Pin:
    """Fetch the bytes of a source into one file and return what arrived.

    Parameters
    ----------
    source
        Where the recipe says they are.
    pin
        The expected file; None only when it is pinned for the first time.
    destination
        The file; it appears whole and checked.
    work
        Folder for unfinished downloads, kept between runs.
    base
        Folder that a `FileSource` is relative to.
    offline
        Use only local files and mirrors that are folders.
    mirrors
        Folders or addresses under which files lie as `<sha256>/<file>` or `<file>`; tried first when there is a pin.
    progress
        Called about ten times a second in the caller's thread with the bytes done and the total, None while unknown.
        What it raises ends the work and every program that it started.
    limit
        Largest size in bytes of a source without a pin.
    patience
        Time limits and retries of downloads.
    shared
        Folder for what several sources use, such as the indexes of Debian's archives, kept between runs; `work` if
        absent.

    Raises
    ------
    UnreachableError
        Nothing that may be asked answers or has it: another source may.
    FetchError, IntegrityError
        The answer cannot be used, or differs from the pin.
    ToolError, FileError, NoSpaceError
        A program that fetches (pip, npm, git, apt-get) is missing, or the file cannot be written.
    """
    job = _FetchJob(
        source, pin, destination, work=work, shared=shared or work, progress=progress, limit=limit, patience=patience
    )
    came = job.from_mirrors(mirrors, offline=offline)
    return came or job.from_source(base, offline=offline)


def _is_remote(mirror: str) -> bool:
    return mirror.startswith(("https://", "http://"))


class _FetchJob:
    """Fetch one source into one file."""

    def __init__(
        self,
        source: Source,
        pin: Pin | None,
        destination: Path,
        *,
        work: Path,
        shared: Path,
        progress: Meter,
        limit: int,
        patience: Patience | None,
    ) -> None:
        self._source = source
        self._pin = pin
        self._destination = destination
        self._work = work
        self._shared = shared
        self._progress = throttled(progress)
        self._limit = limit
        self._patience = patience
        self._failures: list[MacbuildError] = []

    def from_mirrors(self, mirrors: Sequence[str], *, offline: bool) -> Pin | None:
        """Return what a mirror provided, or None; the reasons are kept for errors of `from_source`."""
        pin = self._pin
        if pin is None:
            return None
        names = (f"{pin.sha256}/{pin.file}", pin.file)
        for path in (Path(mirror) / name for mirror in mirrors if not _is_remote(mirror) for name in names):
            try:
                with os_errors(path):
                    if path.is_file():
                        return self._copied(path)
            except (FetchError, FileError) as error:
                self._keep(error)
        remote = [] if offline else [mirror.rstrip("/") for mirror in mirrors if _is_remote(mirror)]
        try:
            return self._downloaded([f"{mirror}/{name}" for mirror in remote for name in names]) if remote else None
        except FetchError as error:
            self._keep(error)
            return None

    def from_source(self, base: Path, *, offline: bool) -> Pin:
        """Fetch from where the recipe says; an error has the mirrors' errors before it."""
        where = self._source.describe()
        try:
            if offline and not isinstance(self._source, FileSource):
                hint = "run once without --offline, or name a folder that has it as a mirror"
                raise UnreachableError("offline, and no mirror has it", where=where, hint=hint)
            with os_errors(where):
                return self._from_source(base)
        except FetchError as error:
            if not self._failures:
                raise
            said = "; ".join(map(str, self._failures))
            text = f"{error.message} (mirrors: {said})"
            raise type(error)(text, where=error.where, hint=error.hint) from error

    def _from_source(self, base: Path) -> Pin:
        source = self._source
        if isinstance(source, UrlSource):
            came = self._downloaded(source.urls)
            return replace(came, file=source.file) if source.file and self._pin is None else came
        if isinstance(source, FileSource):
            path = base / source.path
            if not path.exists():
                raise UnreachableError("there is no such file or folder", where=path)
            return self._packed(path) if path.is_dir() else self._copied(path)
        with self._private_folder() as folder:
            path = self._brought(source, folder)
            return self._copied(path, path.name)

    def _brought(self, source: WheelSource | SdistSource | DebianSource | NpmSource | GitSource, folder: Path) -> Path:
        """Let the program for this kind of source fetch it into the folder."""
        if isinstance(source, WheelSource):
            return fetch_wheel(source, folder, self._progress, self._limit)
        if isinstance(source, SdistSource):
            return fetch_sdist(source, folder, self._progress, self._limit)
        if isinstance(source, DebianSource):
            return fetch_debian(source, folder, self._shared / "apt", self._progress, self._limit)
        if isinstance(source, NpmSource):
            return fetch_npm(source, folder, self._progress, self._limit)
        return fetch_git(source, folder, self._progress, self._limit)

    def _downloaded(self, urls: Sequence[str]) -> Pin:
        wanted = self._pin.sha256 if self._pin else hashlib.sha256(self._source.request().encode()).hexdigest()
        return download(
            urls,
            self._pin,
            self._destination,
            partial=self._work / f"{wanted}.part",
            limit=self._limit,
            progress=self._progress,
            patience=self._patience,
        )

    def _copied(self, path: Path, where: object = None) -> Pin:
        with atomic_path(self._destination) as temporary:
            copy_file(path, temporary)
            return self._checked(temporary, path.name, where or path)

    def _packed(self, folder: Path) -> Pin:
        with atomic_path(self._destination) as temporary:
            with temporary.open("wb") as file:
                write_tar(folder_nodes(folder), file, lambda: self._progress(file.tell(), None))
            return self._checked(temporary, packed_name(folder), folder)

    def _checked(self, temporary: Path, name: str, where: object) -> Pin:
        size, sha256 = hash_file(temporary, self._progress)
        if self._pin is None and size > self._limit:
            raise FetchError(f"larger than the limit of {self._limit} bytes", where=where)
        return check_pin(Pin(name, size, sha256), self._pin, where)

    @contextlib.contextmanager
    def _private_folder(self) -> Iterator[Path]:
        folder = self._work / secrets.token_hex(8)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            remove_tree(folder)

    def _keep(self, error: MacbuildError) -> None:
        if isinstance(error, NoSpaceError):
            raise error
        self._failures.append(error)
