"""Write a folder for PATH in which programs find our stand-ins under the names of Apple's tools."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

from macbuild.files import atomic_path, os_errors

__all__ = ["tool_folder", "write_launchers"]

_TOOLS = ("codesign", "install_name_tool", "lipo", "otool")


def tool_folder(destination: Path) -> Path:
    """Write one small launcher per tool, so that programs that call Apple's tools by name run on any host.

    Parameters
    ----------
    destination
        Parent of the folder. The folder's own name is a digest of the interpreter and the place of macbuild, so that
        installations do not overwrite the launchers of one another.

    Returns
    -------
    Path
        The folder, absolute, to put first on PATH.

    Raises
    ------
    FileError
        If the folder cannot be written.
    """
    scripts = _scripts()
    key = hashlib.sha256(b"".join(scripts.values())).hexdigest()[:16]
    folder = destination.absolute() / key
    write_launchers(folder)
    return folder


def write_launchers(folder: Path) -> None:
    """Write one launcher per tool into a folder; launchers that are there already are left alone, with their times.

    Raises
    ------
    FileError
        If the folder cannot be written.
    """
    for name, content in _scripts().items():
        path = folder / name
        with os_errors(path):
            if path.is_file() and path.read_bytes() == content and path.stat().st_mode & 0o111:
                continue
        with atomic_path(path) as temporary:
            temporary.write_bytes(content)
            temporary.chmod(0o755)


def _scripts() -> dict[str, bytes]:
    # A path need not be UTF-8.
    return {name: _script(name).encode("utf-8", "surrogateescape") for name in _TOOLS}


def _script(name: str) -> str:
    # -I and -S: the tools need the standard library and macbuild only, and neither the folder they are called in nor
    # the start-up files of site-packages may change or delay them.
    package = str(Path(__file__).parents[3])
    code = f"import sys; sys.path.append({package!r}); from macbuild.macho.tools import {name}; {name}()"
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(code)} "$@"\n'
