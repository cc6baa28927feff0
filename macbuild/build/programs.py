"""Find cmake and ninja, and their versions, without starting those that a Python package provides."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from macbuild.errors import ToolError

__all__ = ["cmake_versions", "find_cmake", "find_ninja", "package_version"]


def package_version(package: str) -> str | None:
    """Return the version of an installed Python package, by the name of the folder beside it with its metadata."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    # importlib.metadata takes longer to load than all else that planning needs.
    for entry in sorted(Path(spec.origin).parent.parent.glob(f"{package}-*.dist-info")):
        return entry.name.removesuffix(".dist-info").partition("-")[2]
    return None


@cache
def cmake_versions() -> dict[str, str]:
    """Return the versions of cmake and ninja; a `ToolError` if one is missing."""
    return {name: package_version(name) or _ask(name) for name in ("cmake", "ninja")}


def _ask(name: str) -> str:
    program = find_cmake() if name == "cmake" else find_ninja()
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolError(f"does not state its version: {error}", where=program) from error
    match = re.search(r"\d+(\.\d+)+", done.stdout)
    return match[0] if match else done.stdout.strip()


def find_cmake() -> Path:
    """Return cmake: that of the Python package `cmake`, else the one on PATH; a `ToolError` if there is none."""
    spec = find_spec("cmake")
    if spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "data" / "bin" / "cmake"
        if program.is_file():
            return program
    return _find("cmake")


def find_ninja() -> Path:
    """Return ninja: that of the Python package `ninja`, else the one on PATH; a `ToolError` if there is none."""
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        program = Path(folder, "ninja")
        if program.is_file():
            return program
    return _find("ninja")


def _find(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ToolError(f"the program {name} is missing", where=name, hint=f"python -m pip install {name}")
    return Path(found)
