"""Check that the machine has what macbuild needs, with a command that helps where it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from macbuild.build.programs import cmake_versions
from macbuild.build.toolchain import find_toolchain
from macbuild.commands.project import Project
from macbuild.errors import MacbuildError
from macbuild.target import Target

__all__ = ["DoctorCheck", "check_machine"]

_ROOM = 8 << 30  # LibTorch takes 1.5 GB in the store while it is built, and two of them may be built at once.


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One thing that was checked; without one that is `needed`, `macbuild all` cannot run."""

    name: str
    ok: bool
    needed: bool
    found: str
    hint: str


def check_machine(project: Project) -> Iterator[DoctorCheck]:
    """Yield a check for each thing that macbuild needs or can use.

    Parameters
    ----------
    project
        Where the recipes, the lock and the store are.
    """
    host = project.host
    rosetta = ", under Rosetta" if host.rosetta else ""
    yield DoctorCheck("host", ok=True, needed=True, found=f"{host.system} {host.arch}{rosetta}", hint="")
    version = ".".join(map(str, sys.version_info[:3]))
    yield DoctorCheck("python", ok=True, needed=True, found=version, hint="")
    yield _pip()
    yield _program("npm", "npm sources", "install Node.js")
    yield _program("apt-get", "Debian sources", "use a folder that has their files as a --mirror")
    yield _program("git", "git sources", "install git")
    yield _attempt("recipes", lambda: _recipes(project))
    yield _attempt("lock", lambda: f"{len(project.own_lock.pinned)} sources pinned in {project.lock_path}")
    yield _attempt("compiler", lambda: _compiler(project))
    yield _attempt("cmake", lambda: ", ".join(f"{name} {version}" for name, version in cmake_versions().items()))
    yield _program(os.environ.get("CXX", "c++"), "macbuild test", "install g++ or clang++")
    yield _program("ccache", "faster recompilation", "install ccache")
    yield _store(project)
    yield _room(project)


def _recipes(project: Project) -> str:
    own = len(list(project.recipes.own.values()))  # which reads and checks each of them
    others = len(project.recipes) - own
    return f"{own} in {project.recipes_folder}" + (f", and {others} of macbuild" if others else "")


def _compiler(project: Project) -> str:
    arch = "arm64" if project.arch == "universal2" else project.arch
    name = None if project.settings.toolchain == "auto" else project.settings.toolchain
    return find_toolchain(name, Target(arch, "14.0"), project.environ).describe()


def _pip() -> DoctorCheck:
    answer = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    ok = answer.returncode == 0
    found = answer.stdout.split(" from ")[0] if ok else "not in this Python"
    return DoctorCheck("pip", ok, needed=True, found=found, hint=f"{sys.executable} -m ensurepip --upgrade")


def _program(name: str, purpose: str, hint: str) -> DoctorCheck:
    path = shutil.which(name)
    return DoctorCheck(name, path is not None, needed=False, found=path or f"not found (used for {purpose})", hint=hint)


def _attempt(name: str, look: Callable[[], str]) -> DoctorCheck:
    try:
        return DoctorCheck(name, ok=True, needed=True, found=look(), hint="")
    except MacbuildError as error:
        return DoctorCheck(name, ok=False, needed=True, found=str(error), hint=error.hint or "")


def _store(project: Project) -> DoctorCheck:
    root = project.store.root
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    ok = place.is_dir() and os.access(place, os.W_OK)
    hint = "set MACBUILD_CACHE_DIR to a folder that you can write"
    return DoctorCheck("store", ok, needed=True, found=f"{root}{'' if ok else ' cannot be written'}", hint=hint)


def _room(project: Project) -> DoctorCheck:
    root = project.store.root
    free = shutil.disk_usage(next(folder for folder in (root, *root.parents) if folder.exists())).free
    hint = "macbuild cache prune --days 0, or set MACBUILD_CACHE_DIR to a larger disk"
    return DoctorCheck("disk", free >= _ROOM, needed=False, found=f"{free / 1e9:.1f} GB free for the store", hint=hint)
