"""Packages from the registries that the user configured, brought by their own clients: pip and npm."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from macbuild.errors import FetchError, NoSpaceError, ToolError, UnreachableError
from macbuild.fetch.child import Finished, run
from macbuild.fetch.progress import Progress
from macbuild.fetch.sources import NpmSource, WheelSource

__all__ = ["failure", "fetch_npm", "fetch_wheel"]


_RAW_PROGRESS = re.compile(r"Progress (\d{1,18}) of (\d{1,18})")
_NPM_SUMMARY = re.compile(r'"summary": "(.*)",?')
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT")
_USERINFO = re.compile(r"(://)[^/\s@]+@")


def fetch_wheel(source: WheelSource, folder: Path, progress: Progress, limit: int) -> Path:
    """Let pip download one wheel into an empty folder, with the user's settings; nothing is built or installed.

    Raises
    ------
    UnreachableError
        The package index does not answer or does not have it; the message is pip's.
    FetchError
        It is larger than `limit` bytes.
    ToolError
        pip is not there.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--progress-bar", "raw", "--no-deps"]
    command += ["--only-binary", ":all:", "--platform", source.platform, "--python-version", source.python]
    command += ["--implementation", source.implementation, *(["--abi", source.abi] if source.abi else [])]
    command += ["--dest", str(folder), f"{source.package}=={source.version}"]
    done = 0
    total: int | None = None

    def read(line: str) -> None:
        nonlocal done, total
        if found := _RAW_PROGRESS.fullmatch(line.strip()):
            done, total = int(found[1]), int(found[2]) or None
            if max(done, total or 0) > limit:
                raise FetchError(f"larger than the limit of {limit} bytes", where=source.describe())

    finished = run(command, folder, beat=lambda: progress(done, total), on_line=read)
    if any("No module named pip" in line for line in finished.lines):
        raise ToolError("pip is not installed beside macbuild", hint=f"run '{sys.executable} -m ensurepip'")
    if finished.code:
        raise failure(finished, _pip_reason(finished.lines), source.describe())
    return _only_file(folder, ".whl", source.describe())


def fetch_npm(source: NpmSource, folder: Path, progress: Progress, limit: int) -> Path:
    """Let npm download one package into an empty folder, with the user's settings; no script of it runs.

    Raises
    ------
    UnreachableError
        The registry does not answer or does not have it; the message is npm's.
    FetchError
        It is larger than `limit` bytes.
    ToolError
        npm is not there.
    """
    command = ["npm", "pack", f"{source.package}@{source.version}", "--ignore-scripts", "--json"]
    try:
        finished = run(command, folder, beat=lambda: progress(0, None))
    except ToolError as error:
        raise ToolError(error.message, where=source.describe(), hint="install Node.js, which brings npm") from error
    if finished.code:
        reasons = [found[1] for line in finished.lines if (found := _NPM_SUMMARY.fullmatch(line.strip()))]
        raise failure(finished, reasons[-1] if reasons else "", source.describe())
    package = _only_file(folder, ".tgz", source.describe())
    if package.stat().st_size > limit:
        raise FetchError(f"larger than the limit of {limit} bytes", where=source.describe())
    return package


def failure(finished: Finished, reason: str, where: str) -> FetchError | NoSpaceError:
    """Return the error for a program that failed: its own reason in one line, or its last line, without passwords."""
    if any(map(_NO_SPACE.search, finished.lines)):
        return NoSpaceError("no space left to fetch into", where=where)
    last = next((line.strip() for line in reversed(finished.lines) if line.strip()), f"exit code {finished.code}")
    return UnreachableError(_USERINFO.sub(r"\1", reason or last)[:500], where=where)


def _pip_reason(lines: Sequence[str]) -> str:
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    retries = [line.partition("connection broken by ")[2] for line in lines if "Retrying (" in line]
    return "; ".join([*errors[-1:], *(f"a package index does not answer: {retry}" for retry in retries[-1:])])


def _only_file(folder: Path, suffix: str, where: str) -> Path:
    found = [path for path in folder.iterdir() if path.name.endswith(suffix) and path.is_file()]
    if len(found) != 1:
        raise FetchError(f"{len(found)} files of the kind '*{suffix}' came instead of one", where=where)
    return found[0]
