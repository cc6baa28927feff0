"""What macbuild needs from the machine: found or not, and the command that mends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from macbuild.errors import MacbuildError
from macbuild.project import Project
from macbuild.target import Target
from macbuild.toolchain import find_toolchain
from macbuild.toolchain.versions import cmake_versions

__all__ = ["Check", "examine"]

_ROOM = 8 << 30  # LibTorch takes 1.5 GB in the store while it is made, and two of them may run at once.


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `needed` tells whether its absence stops the main job."""

    name: str
    ok: bool
    needed: bool
    found: str
    mend: str


def examine(project: Project) -> Iterator[Check]:
    """Yield a check for each thing that macbuild needs, or can use.

    Parameters
    ----------
    project
        Where recipes, lock and store should be.
    """
    host = project.host
    rosetta = ", under Rosetta" if host.rosetta else ""
    yield Check("host", ok=True, needed=True, found=f"{host.system} {host.arch}{rosetta}", mend="")
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", ok=True, needed=True, found=version, mend="")
    yield _pip()
    yield _program("npm", "sources of the npm kind", "install Node.js")
    yield _program("apt-get", "sources of the debian kind", "name a folder that has their files as a mirror")
    yield _program("git", "sources of the git kind", "install git")
    yield _attempt("recipes", lambda: f"{len(project.recipes)} in {project.recipes_folder}")
    yield _attempt("lock", lambda: f"{len(project.lock.pinned)} sources pinned in {project.lock_path}")
    yield _attempt("compiler", lambda: _compiler(project))
    yield _attempt("cmake", lambda: ", ".join(f"{name} {version}" for name, version in cmake_versions().items()))
    yield _program(os.environ.get("CXX", "c++"), "macbuild test", "install g++ or clang++")
    yield _program("ccache", "faster builds of what was compiled before", "install ccache")
    yield _store(project)
    yield _room(project)


def _compiler(project: Project) -> str:
    arch = "arm64" if project.arch == "universal2" else project.arch
    name = None if project.settings.toolchain == "auto" else project.settings.toolchain
    return find_toolchain(name, Target(arch, "14.0"), project.environ).describe()


def _pip() -> Check:
    answer = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    ok = answer.returncode == 0
    found = answer.stdout.split(" from ")[0] if ok else "not in this Python"
    return Check("pip", ok, needed=True, found=found, mend=f"{sys.executable} -m ensurepip --upgrade")


def _program(name: str, purpose: str, mend: str) -> Check:
    path = shutil.which(name)
    return Check(name, path is not None, needed=False, found=path or f"not found; only for {purpose}", mend=mend)


def _attempt(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, ok=True, needed=True, found=look(), mend="")
    except MacbuildError as error:
        return Check(name, ok=False, needed=True, found=str(error), mend=error.hint or "")


def _store(project: Project) -> Check:
    root = project.store.root
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    ok = place.is_dir() and os.access(place, os.W_OK)
    mend = "set MACBUILD_CACHE_DIR to a folder of yours"
    return Check("store", ok, needed=True, found=f"{root}{'' if ok else ' cannot be written'}", mend=mend)


def _room(project: Project) -> Check:
    root = project.store.root
    free = shutil.disk_usage(next(folder for folder in (root, *root.parents) if folder.exists())).free
    mend = "macbuild cache prune --days 0, or set MACBUILD_CACHE_DIR to a larger disk"
    return Check("disk", free >= _ROOM, needed=False, found=f"{free / 1e9:.1f} GB free for the store", mend=mend)
