"""Versions of the programs that build, learned without starting them where a Python package brings them."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from macbuild.errors import ToolError

__all__ = ["cmake_versions", "package_version"]


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
    from macbuild.cmake import find_cmake, find_ninja  # noqa: PLC0415 - not needed where the packages are

    program = find_cmake() if name == "cmake" else find_ninja()
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolError(f"does not tell its version: {error}", where=program) from error
    match = re.search(r"\d+(\.\d+)+", done.stdout)
    return match[0] if match else done.stdout.strip()
