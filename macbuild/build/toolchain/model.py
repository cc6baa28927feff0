"""Define a toolchain: it has an identity and prepares a CMake toolchain file with the compilers behind it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from macbuild.errors import ToolError
from macbuild.events import Emit, discard
from macbuild.files import atomic_path

__all__ = ["Name", "PrepareContext", "Prepared", "Toolchain", "cached", "cmake_text", "prefix_maps", "write_if_new"]

_SAVED = "prepared.json"
Name: TypeAlias = Literal["zig", "apple", "host"]


@dataclass(frozen=True, slots=True)
class PrepareContext:
    """Tell a toolchain about the build that it is prepared for.

    Parameters
    ----------
    cache
        Folder for the compiler's own cache, shared by all builds of a store.
    paths
        Folders of this machine, each with the name that replaces it wherever the compiler writes a path into a result.
    foreign
        The project is not ours: its `-Werror` is dropped.
    emit
        Receives notes.
    """

    cache: Path
    paths: Mapping[str, str] = field(default_factory=dict)
    foreign: bool = False
    emit: Emit = discard


@dataclass(frozen=True, slots=True)
class Prepared:
    """A toolchain that was prepared in a folder.

    Parameters
    ----------
    name
        Which toolchain it is.
    identity
        The toolchain's identity.
    toolchain_file
        For CMake.
    environ
        Variables that CMake, the build and a shell for it need besides the clean ones. `PATH` is a prefix: folders to
        put before the others.
    c, cxx
        The compilers to call.
    """

    name: Name
    identity: str
    toolchain_file: Path
    environ: Mapping[str, str]
    c: Path
    cxx: Path

    def save(self, folder: Path) -> Prepared:
        """Save it for `load` in the folder that it was prepared in, and return it."""
        with atomic_path(folder / _SAVED) as partial:
            partial.write_text(json.dumps(asdict(self), default=str, indent=1), "utf-8")
        return self

    @classmethod
    def load(cls, folder: Path) -> Prepared:
        """Return what was prepared in a folder, without preparing it again.

        Raises
        ------
        ToolError
            Nothing was prepared there.
        """
        path = folder / _SAVED
        try:
            data = json.loads(path.read_bytes())
            paths = {key: Path(data.pop(key)) for key in ("toolchain_file", "c", "cxx")}
            return cls(**(data | paths))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ToolError("no toolchain was prepared here", where=folder) from error


class Cached(NamedTuple):
    """Compilers by name, behind ccache if there is one, and the variables that it needs."""

    commands: dict[str, list[str]]
    environ: dict[str, str]


class Toolchain(Protocol):
    """A compiler and a linker for one target."""

    @property
    def name(self) -> Name:
        """Return which kind it is."""

    @property
    def identity(self) -> str:
        """Return the versions that results depend on, of compiler and SDK, and the target.

        The digest of the toolchain's own code, `macbuild.plan.keys.tool_digest`, goes into keys besides it.
        """

    def describe(self) -> str:
        """Return one line for people."""

    def prepare(self, folder: Path, context: PrepareContext) -> Prepared:
        """Write the drivers and the toolchain file into a folder that stays as long as the build folder does.

        Raises
        ------
        ToolError
            The compiler does not work.
        FileError
            The folder cannot be written.
        """


def cached(
    commands: Mapping[str, Sequence[str]], folder: Path, *, path: str | None, check: str, names: Iterable[str]
) -> Cached:
    """Put ccache in front of compilers, if it is on PATH.

    ccache gets the final flags, so what it keeps does not depend on the code that made them.

    Parameters
    ----------
    commands
        The compilers, each under a name for the script that ccache starts, since that takes a compiler without
        arguments.
    folder
        Where to write the scripts.
    path
        The `PATH` to find ccache on.
    check
        Versions of the compiler and of what it compiles with; ccache keeps apart what was compiled with others.
    names
        The names of folders in `-ffile-prefix-map`, which ccache does not look at.

    Raises
    ------
    FileError
        The folder cannot be written.
    """
    ccache = shutil.which("ccache", path=path)
    if ccache is None:
        return Cached({name: list(command) for name, command in commands.items()}, {})
    found = {}
    for name, command in commands.items():
        write_if_new(folder / name, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', 0o755)
        found[name] = [ccache, str(folder / name)]
    known = " ".join((check, *sorted(names)))
    return Cached(found, {"CCACHE_COMPILERTYPE": "clang", "CCACHE_COMPILERCHECK": f"string:{known}"})


def prefix_maps(paths: Mapping[str, str]) -> list[str]:
    """Return the flags by which clang and GCC write other names for folders wherever a path gets into a result."""
    # The last map that fits counts, so a folder in another one comes after it.
    # A compiler compares with paths as they are passed, and CMake passes them absolute with links unresolved.
    return [f"-ffile-prefix-map={os.path.abspath(path)}={name}" for path, name in sorted(paths.items())]


def cmake_text(value: object) -> str:
    """Return a value as a CMake bracket argument, in which nothing is special (cmake-language(7), bracket argument)."""
    text = str(value)
    marks = "="
    while f"]{marks}]" in text + "]":
        marks += "="
    return f"[{marks}[{text}]{marks}]"


def write_if_new(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a text file whole or not at all; leave one that has the text already, and so its time, alone."""
    if path.is_file() and path.read_text("utf-8") == text:
        return
    with atomic_path(path) as partial:
        partial.write_text(text, "utf-8")
        partial.chmod(mode)
