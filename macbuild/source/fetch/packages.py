"""Fetch packages from the registries that the user configured, with their own clients: pip and npm."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from macbuild.errors import FetchError, NoSpaceError, ToolError, UnreachableError
from macbuild.events import Meter
from macbuild.files import tree_size
from macbuild.source.fetch.child import Finished, run
from macbuild.source.fetch.exchange import Patience
from macbuild.source.fetch.sources import NpmSource, SdistSource, WheelSource

__all__ = ["failure", "fetch_npm", "fetch_sdist", "fetch_wheel", "without_passwords"]

PATIENCE: Final = Patience()
"""How slow a download by pip may be: as slow as one by macbuild itself."""
_WEIGHED = 1.0  # seconds between checks of the folder's size
_RAW_PROGRESS = re.compile(r"Progress (\d{1,18}) of (\d{1,18})")
_NPM_SUMMARY = re.compile(r'"summary": "(.*)",?')
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT")
_REFUSED = re.compile(r"macbuild: (.*)")
_USERINFO = re.compile(r"(://)[^/\s@]+@")


def fetch_wheel(source: WheelSource, folder: Path, progress: Meter, limit: int) -> Path:
    """Let pip download one wheel into an empty folder, with the user's settings; nothing is built or installed.

    Raises
    ------
    UnreachableError
        The package index does not answer or does not have it; the message is pip's.
    FetchError
        It is larger than `limit` bytes.
    ToolError
        pip is not installed.
    """
    arguments = ["--only-binary", ":all:", "--platform", source.platform, "--python-version", source.python]
    arguments += ["--implementation", source.implementation, *(["--abi", source.abi] if source.abi else [])]
    _Pip(source, folder, progress, limit).download([sys.executable, "-m", "pip"], arguments, folder)
    return _only_file(folder, (".whl",), source.describe())


def fetch_sdist(source: SdistSource, folder: Path, progress: Meter, limit: int) -> Path:
    """Let pip download one sdist into an empty folder, with the user's settings; no code of the sdist runs.

    pip asks an sdist for its name and version; `pipguard` answers from its PKG-INFO in place of its build backend.

    Raises
    ------
    UnreachableError
        The package index does not answer or does not have it; the message is pip's.
    FetchError
        It, or what it unpacks to, is larger than `limit` bytes, or it has no PKG-INFO to answer from.
    ToolError
        pip is not installed.
    """
    guard = [sys.executable, str(Path(__file__).with_name("pipguard.py"))]
    answers, scratch, arrived = folder / "answers", folder / "scratch", folder / "arrived"
    answers.write_text(f'#!/bin/sh\nexec {shlex.join([guard[0], "-I", guard[1]])} answer "$@"\n', "utf-8")
    answers.chmod(0o700)
    scratch.mkdir()
    arrived.mkdir()
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "PIP_USE_PEP517": "1",  # an option before pip 25.3, the only way since
        "_PIP_RUNNING_IN_SUBPROCESS": "1",  # even if the user's settings name another Python for pip
    }
    arguments = ["--no-binary", ":all:", "--no-build-isolation", "--ignore-requires-python"]
    pip = _Pip(source, folder, progress, limit)
    pip.download([*guard, "pip", str(answers)], arguments, arrived, environment)
    return _only_file(arrived, (".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz"), source.describe())


def fetch_npm(source: NpmSource, folder: Path, progress: Meter, limit: int) -> Path:
    """Let npm download one package into an empty folder, with the user's settings; none of its scripts run.

    Raises
    ------
    UnreachableError
        The registry does not answer or does not have it; the message is npm's.
    FetchError
        It is larger than `limit` bytes.
    ToolError
        npm is not installed.
    """
    command = ["npm", "pack", f"{source.package}@{source.version}", "--ignore-scripts", "--json"]
    try:
        finished = run(command, folder, beat=lambda: progress(0, None))
    except ToolError as error:
        raise ToolError(error.message, where=source.describe(), hint="install Node.js, which includes npm") from error
    if finished.code:
        reasons = [found[1] for line in finished.lines if (found := _NPM_SUMMARY.fullmatch(line.strip()))]
        raise failure(finished, reasons[-1] if reasons else "", source.describe())
    package = _only_file(folder, (".tgz",), source.describe())
    if package.stat().st_size > limit:
        raise FetchError(f"larger than the limit of {limit} bytes", where=source.describe())
    return package


def failure(finished: Finished, reason: str, where: str) -> FetchError | NoSpaceError:
    """Return the error for a program that failed: its own reason in one line, or its last line, without passwords."""
    if any(map(_NO_SPACE.search, finished.lines)):
        hint = "free some space, or set MACBUILD_CACHE_DIR to a folder on a larger disk"
        return NoSpaceError("no space left to fetch into", where=where, hint=hint)
    last = next((line.strip() for line in reversed(finished.lines) if line.strip()), f"exit code {finished.code}")
    return UnreachableError(without_passwords(reason or last)[:500], where=where)


def without_passwords(text: str) -> str:
    """Return the text without the user names and passwords in its addresses."""
    return _USERINFO.sub(r"\1", text)


class _Pip:
    """Run `pip download` once and watch it."""

    def __init__(self, source: WheelSource | SdistSource, folder: Path, progress: Meter, limit: int) -> None:
        self._source = source
        self._folder = folder
        self._progress = progress
        self._limit = limit
        self._done = 0
        self._total: int | None = None
        self._weighed = time.monotonic()
        self._mark: tuple[float, int] | None = None

    def download(
        self,
        pip: Sequence[str],
        arguments: Sequence[str],
        destination: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `pip` so that it downloads the package to `destination`, which is in the watched folder."""
        where = self._source.describe()
        command = [*pip, "download", "--no-input", "--progress-bar", "raw", "--no-deps", *arguments]
        command += ["--dest", str(destination), f"{self._source.package}=={self._source.version}"]
        finished = run(command, self._folder, beat=self._beat, on_line=self._read, environment=environment)
        if any("No module named pip" in line for line in finished.lines):
            raise ToolError("pip is not installed beside macbuild", hint=f"run '{sys.executable} -m ensurepip'")
        if refused := [found[1] for line in finished.lines if (found := _REFUSED.search(line))]:
            raise FetchError(refused[-1][:500], where=where)
        if finished.code:
            raise failure(finished, _pip_reason(finished.lines), where)

    def _beat(self) -> None:
        self._progress(self._done, self._total)
        if time.monotonic() - self._weighed > _WEIGHED:
            self._check(tree_size(self._folder))
            self._weighed = time.monotonic()
        self._check_rate()

    def _check_rate(self) -> None:
        """Give up a server that sends hardly anything: pip itself waits as long as there is a byte now and then."""
        if self._mark is None or self._done == self._total:
            return
        since, before = self._mark
        if self._done - before >= PATIENCE.minimum:
            self._mark = (time.monotonic(), self._done)
        elif time.monotonic() - since > PATIENCE.window:
            problem = f"only {self._done - before} bytes arrived in {PATIENCE.window:g} seconds"
            hint = "check the network, add a mirror, or run again"
            raise UnreachableError(problem, where=self._source.describe(), hint=hint)

    def _read(self, line: str) -> None:
        if found := _RAW_PROGRESS.fullmatch(line.strip()):
            self._done, self._total = int(found[1]), int(found[2]) or None
            self._check(max(self._done, self._total or 0))
            self._mark = self._mark or (time.monotonic(), self._done)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise FetchError(f"larger than the limit of {self._limit} bytes", where=self._source.describe())


def _pip_reason(lines: Sequence[str]) -> str:
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ") and line[7:] != "Exception:"]
    retries = [line.partition("connection broken by ")[2] for line in lines if "Retrying (" in line]
    return "; ".join([*errors[-1:], *(f"a package index does not answer: {retry}" for retry in retries[-1:])])


def _only_file(folder: Path, suffixes: tuple[str, ...], where: str) -> Path:
    found = [path for path in folder.iterdir() if path.name.endswith(suffixes) and path.is_file()]
    if len(found) != 1:
        raise FetchError(f"{len(found)} files of the kind '*{suffixes[0]}' arrived instead of one", where=where)
    return found[0]
