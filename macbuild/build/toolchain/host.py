"""Use the compilers of this machine, to build and run tests on it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from macbuild.build.toolchain.model import Name, PrepareContext, Prepared, cmake_text, write_if_new
from macbuild.errors import ToolError
from macbuild.files import os_errors

__all__ = ["HostToolchain"]


@dataclass(frozen=True)
class HostToolchain:
    """`CC` and `CXX`, or `cc` and `c++`.

    Parameters
    ----------
    environ
        The environment, for `CC`, `CXX` and `PATH`.
    """

    environ: Mapping[str, str]

    @property
    def name(self) -> Name:
        """Return `host`."""
        return "host"

    @cached_property
    def _compilers(self) -> tuple[list[str], list[str]]:
        return self._find("CC", ("cc", "gcc", "clang")), self._find("CXX", ("c++", "g++", "clang++"))

    @cached_property
    def identity(self) -> str:
        """Everything that the compilers print about their version, and the flags that come with them."""
        return " | ".join(" ".join([*compiler[1:], _version(compiler)]) for compiler in self._compilers)

    def describe(self) -> str:
        """Return the first line of the C++ compiler's version."""
        return _version(self._compilers[1]).partition("\n")[0]

    def prepare(self, folder: Path, context: PrepareContext) -> Prepared:
        """Write a toolchain file that names the compilers."""
        del context
        c, cxx = self._compilers
        lines = []
        for language, compiler in (("C", c), ("CXX", cxx)):
            lines.append(f"set(CMAKE_{language}_COMPILER {cmake_text(';'.join(compiler))})")
        file = folder / "toolchain.cmake"
        with os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_if_new(file, "\n".join(lines) + "\n")
        return Prepared("host", self.identity, file, {}, Path(c[0]), Path(cxx[0])).save(folder)

    def _find(self, variable: str, names: tuple[str, ...]) -> list[str]:
        given = self.environ.get(variable)
        for name in [given] if given else names:
            words = shlex.split(name)
            found = shutil.which(words[0], path=self.environ.get("PATH")) if words else None
            if found:
                return [found, *words[1:]]
        hint = f"install a compiler, or name it in {variable}"
        raise ToolError(f"no compiler: {given or ', '.join(names)}", where=variable, hint=hint)


def _version(command: list[str]) -> str:
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolError(f"does not state its version: {error}", where=command[0]) from error
    return done.stdout.strip()
