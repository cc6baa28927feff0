"""Compute what the result of a step depends on besides its inputs: macbuild's code, recipes and policies."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from macbuild.config import bundled
from macbuild.errors import ConfigError
from macbuild.plan.model import FetchSpec, Kind, Step
from macbuild.store import digest

__all__ = ["Tool", "data_digest", "pin_digest", "policy_digest", "step_key", "tool_digest"]

Tool: TypeAlias = Kind | Literal["verify", "zig", "apple", "host"]

_PACKAGE = Path(__file__).parent.parent
# Packages whose version decides the bytes that a step writes.
_LIBRARIES: Mapping[str, tuple[str, ...]] = {"pack": ("zlib_ng", "cyclonedx")}
_DATA = frozenset({".cmake", ".css", ".json", ".toml"})


@cache
def tool_digest(kind: Tool) -> str:
    """Return the digest of the code that decides a result, empty if the pin of a source decides it.

    Parameters
    ----------
    kind
        A kind of step; `verify` for the check of signatures; or the name of a toolchain.

    Raises
    ------
    ConfigError
        `code_closures.json` names a file that does not exist: it is out of date.
    """
    names = _closures()[kind]
    if not names:
        return ""
    parts = [f"{name} {_file_digest(name)}" for name in names]
    # Each package states its version: importlib.metadata takes longer to load than all else that planning needs.
    parts += [f"{name} {import_module(name).__version__}" for name in _LIBRARIES.get(kind, ())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def _closures() -> dict[str, list[str]]:
    """Return the files of each kind, as `macbuild.plan.code_closures` wrote them."""
    found: dict[str, list[str]] = json.loads(Path(__file__).with_name("code_closures.json").read_bytes())
    return found


@cache
def _file_digest(name: str) -> str:
    """Return the digest of a file, of the data files in a folder (`NAME/`), or of a part of a file (`NAME#PART`)."""
    name, _, part = name.partition("#")
    folder, slash, rest = name.partition("/")
    path = _PACKAGE / name
    if slash and not (_PACKAGE / folder).is_dir():
        path = bundled(folder) / rest
    try:
        content = _folder(path) if name.endswith("/") else _part(_read(path), part)
    except (OSError, LookupError) as error:
        hint = "write code_closures.json again: python -m macbuild.plan.code_closures"
        raise ConfigError(f"the code of a step cannot be read ({error})", where=path, hint=hint) from error
    return hashlib.sha256(content).hexdigest()


def _folder(path: Path) -> bytes:
    """Return the names and the contents of all data files below a folder; a `LookupError` if there are none."""
    files = sorted(file for file in path.rglob("*") if file.suffix in _DATA)
    if not files:
        raise LookupError("no data files")
    return b"".join(b"%s\0%s\0" % (file.name.encode(), _read(file)) for file in files)


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _part(content: bytes, name: str) -> bytes:
    """Return a function or a class of a module, which ends where two lines are empty; the whole module without a name.

    Raises
    ------
    LookupError
        The module has no such function or class.
    """
    if not name:
        return content
    for part in content.split(b"\n\n\n"):
        if re.search(rb"^(?:def|class) %s\b" % name.encode(), part, re.MULTILINE):
            return part
    raise LookupError(f"no {name}")


def policy_digest(policy: str) -> str:
    """Return the digest of an audit policy.

    It is the name of a built-in policy, whose files belong to the code of the audit; else it is a digest of what the
    file and those that it extends say. A policy that does not load is a `ConfigError`.
    """
    if (_PACKAGE / "audit" / "policies" / f"{policy}.toml").is_file():
        return policy
    from macbuild.audit.policy import load_policy

    return data_digest(load_policy(policy))


def data_digest(value: object) -> str:
    """Return the digest of a struct or of a sequence of structs."""
    return digest(msgspec.to_builtins(value))


def step_key(kind: Kind, facts: Mapping[str, str], needs: Sequence[Step]) -> tuple[str, dict[str, str]]:
    """Return the key of a step, and everything that it is the digest of.

    Parameters
    ----------
    kind
        What the step does; the code that does it is an ingredient.
    facts
        Digests of what the step is given, by name.
    needs
        The steps whose results it reads.
    """
    ingredients = {**facts, **{f"input {step.kind}": step.key for step in needs}}
    if len({step.kind for step in needs}) != len(needs):
        ingredients = {**facts, **{f"input {step.id}": step.key for step in needs}}
    tool = tool_digest(kind)
    if tool:
        ingredients["macbuild"] = tool
    return digest({"kind": kind, **ingredients}), ingredients


def pin_digest(spec: FetchSpec) -> str:
    """Return the digest of a pin, which states the bytes that a source must serve."""
    return digest([spec.pin.file, spec.pin.size, spec.pin.sha256])
