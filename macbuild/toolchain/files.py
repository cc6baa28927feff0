"""The toolchain file for CMake, and the folder that keeps a build from asking the machine it runs on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from macbuild.config import bundled
from macbuild.files import atomic_path, os_errors
from macbuild.toolchain.model import cmake_text

__all__ = ["write_if_new", "write_toolchain"]

_TOOLS = {"install_name_tool": "install_name_tool", "otool": "otool", "lipo": "lipo", "codesign": "codesign"}


def write_toolchain(
    folder: Path,
    name: str,
    variables: Mapping[str, object],
    *,
    programs: Mapping[str, Sequence[str]],
    hidden: Sequence[str],
) -> tuple[Path, Path]:
    """Write `toolchain.cmake`, which sets variables and includes `cmake/<name>.cmake`, and a folder for `PATH`.

    Parameters
    ----------
    folder
        Where to write.
    name
        Which file of macbuild's own to include.
    variables
        What that file needs.
    programs
        Commands to have under other names, as `ar`.
    hidden
        Programs that CMake asks about the machine; the folder for `PATH` has each as a program that fails.

    Returns
    -------
    tuple
        The toolchain file, and the folder for `PATH`.
    """
    tools = folder / "tools"
    # Without a word, since CMake shows what they say.
    texts = dict.fromkeys(hidden, "#!/bin/sh\nexit 1\n")
    texts |= {tool: f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n' for tool, command in programs.items()}
    for tool, function in _TOOLS.items():
        code = f"from macbuild.cli.tools import {function}; {function}()"
        texts[tool] = f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", code])} "$@"\n'
    with os_errors(folder):
        tools.mkdir(parents=True, exist_ok=True)
        for tool, text in texts.items():
            write_if_new(tools / tool, text, 0o755)
        lines = [f"set({key} {cmake_text(value)})" for key, value in {**variables, "MACBUILD_TOOLS": tools}.items()]
        lines.append(f"include({cmake_text(bundled('cmake') / f'{name}.cmake')})")
        write_if_new(folder / "toolchain.cmake", "\n".join(lines) + "\n")
    return folder / "toolchain.cmake", tools


def write_if_new(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a text file whole or not at all; leave one that has the text already, and so its time, alone."""
    if path.is_file() and path.read_text("utf-8") == text:
        return
    with atomic_path(path) as partial:
        partial.write_text(text, "utf-8")
        partial.chmod(mode)
