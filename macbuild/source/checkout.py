"""Use a developer's own folder as a source, without the files that git ignores."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from macbuild.errors import FileError, PlanError
from macbuild.files import os_errors, walk

__all__ = ["checkout_digest", "copy_checkout"]

_MAX_FILES = 50_000


def checkout_digest(folder: Path) -> tuple[int, str]:
    """Return the size in bytes and the sha256 over paths, modes and contents of the files of a folder.

    Parameters
    ----------
    folder
        In a git work tree, what git tracks or would track counts; elsewhere everything but `.git`.

    Raises
    ------
    PlanError
        The folder is missing or empty, or has far too many files.
    FileError
        A file cannot be read.
    """
    total = _Total()
    for file in _files(folder):
        total.add(*file)
    return total.size, total.sha256.hexdigest()


def copy_checkout(folder: Path, stage: Path, expected: str) -> None:
    """Copy a folder into a stage.

    Parameters
    ----------
    folder
        As for `checkout_digest`.
    stage
        A folder that does not exist yet.
    expected
        The sha256 that the plan was made with.

    Raises
    ------
    FileError
        The folder has changed since.
    """
    total = _Total()
    with os_errors(stage):
        stage.mkdir()
        for name, mode, data in _files(folder):
            total.add(name, mode, data)
            target = stage / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if mode == "link":
                target.symlink_to(os.fsdecode(data))
            else:
                target.write_bytes(data)
                target.chmod(int(mode, 8))
    if total.sha256.hexdigest() != expected:
        raise FileError("changed while it was read", where=folder, hint="run the same command again")


class _Total:
    """Size and sha256 of the files that were added."""

    def __init__(self) -> None:
        self.size = 0
        self.sha256 = hashlib.sha256()

    def add(self, name: str, mode: str, data: bytes) -> None:
        self.sha256.update(f"{name}\0{mode}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
        self.size += len(data)


def _files(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield path, mode (0644, 0755 or link) and content or target of each file, sorted by path."""
    if not folder.is_dir():
        raise PlanError("is not a folder", where=folder, hint="give the top folder of the component's sources")
    names = _names(folder)
    if not 0 < len(names) <= _MAX_FILES:
        problem = f"has {len(names)} files" if names else "is empty"
        raise PlanError(problem, where=folder, hint="give the top folder of the component's sources")
    for name in names:
        path = folder / name
        with os_errors(path):
            if path.is_symlink():
                yield name, "link", os.fsencode(path.readlink())
            elif path.is_file():
                yield name, "0755" if path.stat().st_mode & 0o100 else "0644", path.read_bytes()


def _names(folder: Path) -> list[str]:
    if (folder / ".git").exists():
        command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        # git starts a hook with variables that name the hook's own repository.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(command, env=environ, capture_output=True, check=False)
        except OSError:
            done = None
        if done is not None and done.returncode == 0:
            return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})
    return sorted(entry.path for entry in walk(folder, skip={".git", "__pycache__"}) if entry.kind in {"file", "link"})
