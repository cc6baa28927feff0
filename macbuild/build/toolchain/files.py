"""Write the toolchain file for CMake, and the folder that keeps a build from asking the machine it runs on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from macbuild.build.toolchain.model import cmake_text, write_if_new
from macbuild.config import bundled
from macbuild.files import os_errors
from macbuild.macho.tools.path import write_launchers

__all__ = ["write_toolchain"]


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
    # Silent, because CMake shows what they print.
    texts = dict.fromkeys(hidden, "#!/bin/sh\nexit 1\n")
    texts |= {tool: f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n' for tool, command in programs.items()}
    write_launchers(tools)
    with os_errors(folder):
        tools.mkdir(parents=True, exist_ok=True)
        for tool, text in texts.items():
            write_if_new(tools / tool, text, 0o755)
        lines = [f"set({key} {cmake_text(value)})" for key, value in {**variables, "MACBUILD_TOOLS": tools}.items()]
        lines.append(f"include({cmake_text(bundled('cmake') / f'{name}.cmake')})")
        write_if_new(folder / "toolchain.cmake", "\n".join(lines) + "\n")
    return folder / "toolchain.cmake", tools
