"""Read CMake's description of a configured build from its File API (cmake-file-api(7), version 1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from macbuild.data import from_json
from macbuild.errors import BuildError
from macbuild.files import os_errors

__all__ = ["BuildTarget", "Compiler", "Model", "read_model", "write_query"]

_API = Path(".cmake", "api", "v1")
_CLIENT = "client-macbuild"
_KINDS = {"codemodel": 2, "cache": 2, "toolchains": 1, "cmakeFiles": 1}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BuildTarget:
    """A target of the project: its name, CMake's word for its kind (`SHARED_LIBRARY`), and the files it makes."""

    name: str
    kind: str
    artifacts: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler as CMake found it: `id` is CMake's word for the kind, as `Clang`."""

    language: str
    path: Path
    id: str
    version: str


@dataclass(frozen=True, slots=True)
class Model:
    """A configured build.

    Parameters
    ----------
    targets, compilers
        By name and by language.
    inputs
        Files of the project and of its toolchain that the configuration read.
    cache
        The cache variables.
    """

    targets: dict[str, BuildTarget]
    compilers: dict[str, Compiler]
    inputs: tuple[Path, ...]
    cache: dict[str, str]


class _Reply(msgspec.Struct):
    kind: str = ""
    json_file: str = msgspec.field(name="jsonFile", default="")


class _Client(msgspec.Struct):
    query: dict[str, list[_Reply]] = msgspec.field(name="query.json", default_factory=dict)


class _Index(msgspec.Struct):
    reply: dict[str, msgspec.Raw]


class _File(msgspec.Struct):
    path: str
    generated: bool = msgspec.field(name="isGenerated", default=False)
    cmake: bool = msgspec.field(name="isCMake", default=False)


class _Inputs(msgspec.Struct):
    inputs: list[_File]


class _Entry(msgspec.Struct):
    name: str
    value: str


class _Cache(msgspec.Struct):
    entries: list[_Entry]


class _Tool(msgspec.Struct):
    path: str = ""
    id: str = ""
    version: str = ""


class _Language(msgspec.Struct):
    language: str
    compiler: _Tool


class _Toolchains(msgspec.Struct):
    toolchains: list[_Language]


class _TargetRef(msgspec.Struct):
    json_file: str = msgspec.field(name="jsonFile")


class _Configuration(msgspec.Struct):
    targets: list[_TargetRef]


class _Codemodel(msgspec.Struct):
    configurations: list[_Configuration]


class _Artifact(msgspec.Struct):
    path: str


class _Target(msgspec.Struct):
    name: str
    type: str
    artifacts: list[_Artifact] = []


def write_query(build: Path) -> None:
    """Ask CMake to leave its answers in a build folder, when it configures next."""
    query = build / _API / "query" / _CLIENT / "query.json"
    if not query.is_file():
        requests = [{"kind": kind, "version": version} for kind, version in _KINDS.items()]
        with os_errors(query):
            query.parent.mkdir(parents=True, exist_ok=True)
            query.write_bytes(msgspec.json.encode({"requests": requests}))


def read_model(build: Path, source: Path) -> Model:
    """Read CMake's answers.

    Parameters
    ----------
    build
        The build folder.
    source
        The project's folder, which the names of inputs are relative to.

    Raises
    ------
    BuildError
        There is no answer, or it does not have the form of version 1.
    """
    folder = build / _API / "reply"
    names = sorted(folder.glob("index-*.json"))
    if not names:
        raise BuildError("CMake left no description of the build", where=folder)
    index = _decode(names[-1], _Index)
    try:
        client = from_json(index.reply[_CLIENT], _Client)
    except (KeyError, msgspec.DecodeError) as error:
        raise BuildError("CMake's description of the build has another form", where=names[-1]) from error
    replies = {reply.kind: folder / reply.json_file for reply in client.query.get("responses", [])}
    missing = _KINDS.keys() - replies.keys()
    if missing:
        raise BuildError(f"CMake did not answer about {', '.join(sorted(missing))}", where=names[-1])
    inputs = _decode(replies["cmakeFiles"], _Inputs).inputs
    return Model(
        targets={target.name: target for target in _targets(build, folder, replies["codemodel"])},
        compilers={
            entry.language: Compiler(
                entry.language, Path(entry.compiler.path), entry.compiler.id, entry.compiler.version
            )
            for entry in _decode(replies["toolchains"], _Toolchains).toolchains
        },
        inputs=tuple(dict.fromkeys(source / entry.path for entry in inputs if not entry.generated and not entry.cmake)),
        cache={entry.name: entry.value for entry in _decode(replies["cache"], _Cache).entries},
    )


def _targets(build: Path, folder: Path, codemodel: Path) -> list[BuildTarget]:
    found = []
    for configuration in _decode(codemodel, _Codemodel).configurations:
        for ref in configuration.targets:
            target = _decode(folder / ref.json_file, _Target)
            artifacts = tuple(build / artifact.path for artifact in target.artifacts)
            found.append(BuildTarget(target.name, target.type, artifacts))
    return found


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return from_json(path.read_bytes(), kind)
    except OSError as error:
        raise BuildError(f"cannot be read: {error.strerror}", where=path) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BuildError(f"CMake's description of the build has another form: {error}", where=path) from error
