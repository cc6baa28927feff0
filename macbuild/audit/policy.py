"""Policies of the audit as data: the severity of each rule, the parameters of the rules, and exemptions."""

from __future__ import annotations

import re
from fnmatch import translate
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from macbuild.audit.catalogue import RULES
from macbuild.audit.model import Exemption, Severity
from macbuild.data import Data, convert, schema_of
from macbuild.documents import parse_document, read_document
from macbuild.errors import ConfigError, nearest

__all__ = [
    "BUILT_IN",
    "Level",
    "NameSet",
    "Parameters",
    "Policy",
    "Runtime",
    "check_rule",
    "load_policy",
    "policy_schema",
]

Level: TypeAlias = Literal["error", "warning", "info", "off"]

_FOLDER = Path(__file__).parent / "policies"
BUILT_IN = ("release", "wheel", "permissive")
_MAX_EXTENDS = 8
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Runtime(Data, frozen=True):
    """A library that must not be in one process twice, and how to recognize a copy.

    `files` are globs on file names, `defines` symbols that a copy has in its symbol table, also hidden ones, `exports`
    symbols that a copy exports. `system` is the path of the copy that macOS has, if it has one.
    """

    name: _Text
    files: list[_Text] = []
    defines: list[_Text] = []
    exports: list[_Text] = []
    system: str | None = None


class Parameters(Data, frozen=True):
    """Parameters of the rules.

    Parameters
    ----------
    header_room
        Bytes that must be free after the load commands.
    install_name_prefixes
        Allowed starts of install names other than `@rpath/`.
    external
        Globs on dependencies that other packages provide: on the name in the load command, or on the path in the tree
        that it leads to.
    flat_lookup
        Globs on symbols that may be looked up in all images, such as those of Python in an extension module.
    banned_exports
        Globs on symbols that must not be exported.
    banned_strong_exports
        The same, but a weak definition is fine: dyld unifies it with that of the system.
    build_paths
        Starts of absolute paths that exist only on build machines.
    build_path_examples
        How many paths a finding shows.
    runtimes
        Libraries that must not be in one process twice.
    """

    header_room: Annotated[int, msgspec.Meta(ge=0)]
    install_name_prefixes: list[_Text]
    external: list[_Text]
    flat_lookup: list[_Text]
    banned_exports: list[_Text]
    banned_strong_exports: list[_Text]
    build_paths: list[_Text]
    build_path_examples: Annotated[int, msgspec.Meta(ge=1, le=100)]
    runtimes: list[Runtime]


class Policy(Data, frozen=True):
    """The severity of each rule and its parameters. A file may leave out what the policy that it `extends` has."""

    name: _Text
    summary: _Text
    severity: dict[str, Level]
    parameters: Parameters
    exemptions: list[Exemption] = []

    def level(self, rule: str) -> Severity | None:
        """Return the severity of a rule, or None if it is off."""
        level = self.severity[rule]
        return None if level == "off" else Severity(level)


class NameSet:
    """Globs on symbol names, compiled so that a hundred thousand names cost milliseconds."""

    def __init__(self, globs: list[str]) -> None:
        encoded = [glob.encode("utf-8", "surrogateescape") for glob in globs]
        plain = [glob for glob in encoded if not re.search(rb"[*?\[]", glob)]
        starts = [glob for glob in encoded if re.fullmatch(rb"[^*?\[]*\*", glob)]
        self._exact = frozenset(plain)
        self._prefixes = tuple(glob[:-1] for glob in starts)
        rest = [translate(glob) for glob in globs if glob.encode("utf-8", "surrogateescape") not in {*plain, *starts}]
        self._pattern = re.compile("|".join(rest).encode("utf-8", "surrogateescape")) if rest else None

    def __contains__(self, name: bytes) -> bool:
        """Tell whether one of the globs matches a name."""
        return (
            name in self._exact
            or name.startswith(self._prefixes)
            or (self._pattern is not None and self._pattern.match(name) is not None)
        )

    def select(self, names: frozenset[bytes]) -> frozenset[bytes]:
        """Return the names that one of the globs matches."""
        if not self._prefixes and self._pattern is None:
            return names & self._exact
        return frozenset(name for name in names if name in self)


def load_policy(name_or_path: str) -> Policy:
    """Load a built-in policy by name, or one from a TOML file, in which `extends` names another one to start from.

    Raises
    ------
    ConfigError
        If there is no such policy, or the file has an unknown key, rule id or a bad value; it names the nearest.
    """
    data, where = _merged(name_or_path, Path(), 0)
    data.pop("extends", None)
    data.pop("$schema", None)
    policy = convert(data, Policy, where, ConfigError)
    for rule in [*policy.severity, *(exemption.rule for exemption in policy.exemptions)]:
        check_rule(rule, where)
    missing = [rule for rule in RULES if rule not in policy.severity]
    if missing:
        raise ConfigError(
            f"no severity for {', '.join(missing[:3])}", where=where, hint='start the file with extends = "release"'
        )
    return policy


def check_rule(rule: str, where: object) -> None:
    """Raise a `ConfigError` that names the nearest rule if there is no rule with this id."""
    if rule not in RULES:
        raise ConfigError(f"unknown rule {rule!r}", where=where, hint=nearest(rule, list(RULES)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _merged(name: str, beside: Path, depth: int) -> tuple[dict[str, Any], Path]:
    path = _FOLDER / f"{name}.toml" if name in BUILT_IN else beside / name
    if not _exists(path):
        hint = f"choose from {', '.join(BUILT_IN)}, or give the path of a TOML file"
        raise ConfigError(f"there is no policy {name!r}", where="audit policy", hint=hint)
    if depth > _MAX_EXTENDS:
        raise ConfigError("policies extend each other without end", where=path)
    data = parse_document(read_document(path, ConfigError), path, ConfigError)
    parent = data.get("extends")
    if parent is None:
        return data, path
    if not isinstance(parent, str):
        raise ConfigError("'extends' is not a name", where=path)
    base, _ = _merged(parent, path.parent, depth + 1)
    for key in ("severity", "parameters"):
        if isinstance(data.get(key), dict) and isinstance(base.get(key), dict):
            data[key] = {**base[key], **data[key]}
    return {**base, "name": path.stem, **data}, path


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy file, from the definition above."""
    schema = schema_of(Policy, "macbuild audit policy")
    definitions = schema["$defs"]
    policy = definitions["Policy"]
    policy["properties"]["extends"] = {"type": "string", "minLength": 1}
    policy["properties"]["$schema"] = {"type": "string"}
    levels = policy["properties"]["severity"].pop("additionalProperties")
    policy["properties"]["severity"] |= {
        "additionalProperties": False,
        "properties": {rule: {"description": text, **levels} for rule, text in RULES.items()},
    }
    policy.pop("required")
    definitions["Parameters"].pop("required")
    return schema
