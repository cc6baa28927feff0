"""Write the folder that zig links against: stubs of macOS' libraries and frameworks in the layout of an SDK."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from macbuild.build.toolchain.evidence import write_stubs
from macbuild.files import os_errors

__all__ = ["Sysroot", "write_sysroot"]

_FRAMEWORK = re.compile(r"/System/Library/Frameworks/(?:.*/)?([^/]+)\.framework/(?:Versions/[^/]+/)?\1")
_LIBCXX = "/usr/lib/libc++.1.dylib"
_LIBSYSTEM = "/usr/lib/libSystem.B.dylib"


@dataclass(frozen=True)
class Sysroot:
    """The places of the stubs.

    Parameters
    ----------
    folder
        The whole tree: `System/Library/Frameworks/<name>.framework/<name>.tbd` and `usr/lib/lib<name>.tbd`.
    libcxx
        The stub of the C++ library.
    libraries, frameworks
        Stubs by the name after `-l` and after `-framework`. libSystem is not among them: zig brings it.
    """

    folder: Path
    libcxx: str
    libraries: Mapping[str, str]
    frameworks: Mapping[str, str]


def write_sysroot(folder: Path, arch: str, deployment: str) -> Sysroot:
    """Write the stubs with the symbols that have evidence at a deployment target, and give them their places.

    Raises
    ------
    FileError
        The folder cannot be written.
    """
    stubs = write_stubs(folder / "stubs", arch, deployment)
    libraries: dict[str, str] = {}
    frameworks: dict[str, str] = {}
    with os_errors(folder):
        for name, stub in stubs.items():
            if name in {_LIBCXX, _LIBSYSTEM}:
                continue
            match = _FRAMEWORK.fullmatch(name)
            short = match[1] if match else name.rpartition("/")[2].removeprefix("lib").partition(".")[0]
            place = f"System/Library/Frameworks/{short}.framework/{short}.tbd" if match else f"usr/lib/lib{short}.tbd"
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_symlink():
                path.symlink_to(stub)
            (frameworks if match else libraries)[short] = str(path)
    return Sysroot(folder, str(stubs[_LIBCXX]), libraries, frameworks)
