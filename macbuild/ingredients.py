"""What the result of a step depends on besides its inputs: code of macbuild, files of a recipe, policies."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import msgspec

from macbuild.errors import RecipeError
from macbuild.files import os_errors
from macbuild.stage import matching
from macbuild.store import digest

__all__ = ["data_digest", "input_files", "inputs_digest", "policy_digest", "tool_digest"]

_PACKAGE = Path(__file__).parent
# What of macbuild's own code decides the result of a step, so that a change of it runs the step again.
_CODE: Mapping[str, tuple[str, ...]] = {
    "fetch": (),
    "checkout": ("checkout.py",),
    "unpack": ("fetch/unpack.py", "fetch/members.py", "fetch/tars.py", "fetch/zips.py"),
    "install": ("stage.py",),
    "patch": ("patching",),
    "build": ("compile.py", "cmake.py", "stage.py", "macho"),
    "fix": ("repair.py", "stage.py", "macho"),
    "assemble": ("assemble.py", "stage.py", "macho"),
    "merge": ("merge.py", "repair.py", "stage.py", "macho"),
    "audit": ("audit", "macho", "target.py", "steps.py"),
    "verify": ("macho",),
    "pack": ("package", "describe.py", "steps.py", "repair.py", "__init__.py"),
}
_LIBRARIES: Mapping[str, tuple[str, ...]] = {"pack": ("zlib_ng", "cyclonedx")}
_MAX_INPUTS = 10_000


@lru_cache
def tool_digest(kind: str) -> str:
    """Return the identity of the code that a step runs, empty for a step whose result its pin decides."""
    hasher = hashlib.sha256()
    for name in _CODE[kind]:
        place = _PACKAGE / name
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.suffix in {".py", ".toml", ".json"}:
                hasher.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    for name in _LIBRARIES.get(kind, ()):
        # Their own word on their version: importlib.metadata takes longer to load than all else that planning needs.
        hasher.update(f"{name} {import_module(name).__version__}\0".encode())
    return hasher.hexdigest() if _CODE[kind] else ""


def policy_digest(policy: str) -> str:
    """Return the identity of an audit policy: its name if it is built in, since that is macbuild's code; else what its
    file and those that it extends say. A policy that does not load is a `ConfigError`.
    """  # noqa: D205 - one sentence more than a line has room for
    if (_PACKAGE / "audit" / "policies" / f"{policy}.toml").is_file():
        return policy
    from macbuild.audit.policy import load_policy  # noqa: PLC0415 - the built-in ones need no reading here

    return data_digest(load_policy(policy))


def data_digest(value: object) -> str:
    """Return the identity of a struct or a sequence of them."""
    return digest(msgspec.to_builtins(value))


def input_files(folder: Path, globs: Sequence[str]) -> list[Path]:
    """Return the files that a component is built from, sorted.

    Parameters
    ----------
    folder
        The recipe's folder.
    globs
        Patterns below it; one that begins with `../name/` is for the folder of another recipe, one that begins with
        `../../cmake/` for the folder beside the recipes.

    Raises
    ------
    RecipeError
        If a pattern leads elsewhere, matches nothing, or all match far too much.
    """
    found: set[Path] = set()
    for glob in globs:
        parts = glob.split("/")
        if parts[:3] == ["..", "..", "cmake"] and len(parts) > 3:
            base, pattern = folder.parents[1] / "cmake", "/".join(parts[3:])
        elif parts[0] == ".." and len(parts) > 2:
            base, pattern = folder.parent / parts[1], "/".join(parts[2:])
        else:
            base, pattern = folder, glob
        if ".." in pattern.split("/") or pattern.startswith("/") or base == folder.parent / "..":
            raise RecipeError(f"{glob!r} leads out of the recipes", where=folder, hint="write src/* or ../other/src/*")
        found_here = matching(base, pattern)
        matches = {path for path in found_here if path.is_file() and "__pycache__" not in path.parts}
        if not matches:
            raise RecipeError(f"the input {glob!r} matches nothing", where=folder)
        found |= matches
        if len(found) > _MAX_INPUTS:
            raise RecipeError(f"the inputs are more than {_MAX_INPUTS} files", where=folder)
    return sorted(found)


def inputs_digest(folder: Path, globs: Sequence[str]) -> tuple[int, str]:
    """Return the total size in bytes of a component's input files, and a sha256 over their paths and contents."""
    hasher = hashlib.sha256()
    size = 0
    for path in input_files(folder, globs):
        with os_errors(path):
            data = path.read_bytes()
        size += len(data)
        name = os.path.relpath(path, folder.parent)
        hasher.update(f"{name}\0{len(data)}\0".encode() + data)
    return size, hasher.hexdigest()
