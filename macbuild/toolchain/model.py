"""What a toolchain is to the rest of macbuild: something with an identity that makes ready a CMake toolchain file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from macbuild.errors import ToolError
from macbuild.events import Emit, discard
from macbuild.files import atomic_path

__all__ = ["Name", "PrepareContext", "Prepared", "Toolchain", "cmake_text", "digest_files", "prefix_maps"]

_SAVED = "prepared.json"
Name: TypeAlias = Literal["zig", "apple", "host"]


@dataclass(frozen=True, slots=True)
class PrepareContext:
    """What a toolchain must know of the build that it is made ready for.

    Parameters
    ----------
    cache
        Folder for the compiler's own cache, shared by all builds of a store.
    paths
        Folders of this machine, and the name that each gets wherever the compiler writes a path into a result.
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
    """A toolchain that is ready to build with.

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
        """Write it into the folder that it was prepared in, for `load`, and return it."""
        with atomic_path(folder / _SAVED) as partial:
            partial.write_text(json.dumps(asdict(self), default=str, indent=1), "utf-8")
        return self

    @classmethod
    def load(cls, folder: Path) -> Prepared:
        """Return what was prepared in a folder, without making it ready again.

        Raises
        ------
        ToolError
            Nothing was.
        """
        path = folder / _SAVED
        try:
            data = json.loads(path.read_bytes())
            paths = {key: Path(data.pop(key)) for key in ("toolchain_file", "c", "cxx")}
            return cls(**(data | paths))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ToolError("no toolchain was made ready here", where=folder) from error


class Toolchain(Protocol):
    """A compiler and a linker for one target."""

    @property
    def name(self) -> Name:
        """Which kind it is."""

    @property
    def identity(self) -> str:
        """Everything that the results depend on: compiler, versions, SDK, digests of the driver and of the stubs."""

    def describe(self) -> str:
        """Return one line for people."""

    def prepare(self, folder: Path, context: PrepareContext) -> Prepared:
        """Write the drivers and the toolchain file into a folder that stays as long as the build folder does.

        Raises
        ------
        ToolError
            The compiler does not work.
        StoreError
            The folder cannot be written.
        """


def digest_files(paths: Iterable[Path]) -> str:
    """Return a short digest of the contents and names of files that results depend on."""
    import hashlib  # noqa: PLC0415 - a run that compiles nothing needs no digest

    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def prefix_maps(paths: Mapping[str, str]) -> list[str]:
    """Return the flags by which clang and GCC write other names for folders wherever a path gets into a result."""
    # The last map that fits counts, so a folder in another one comes after it.
    # A compiler compares with paths as they are passed, and CMake passes them absolute with links unresolved.
    return [f"-ffile-prefix-map={os.path.abspath(path)}={name}" for path, name in sorted(paths.items())]  # noqa: PTH100


def cmake_text(value: object) -> str:
    """Return a value as a CMake bracket argument, in which nothing is special (cmake-language(7), bracket argument)."""
    text = str(value)
    marks = "="
    while f"]{marks}]" in text + "]":
        marks += "="
    return f"[{marks}[{text}]{marks}]"
