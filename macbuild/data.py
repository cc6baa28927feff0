"""Read typed data from TOML and JSON: errors name the file, the key and the nearest valid key."""

from __future__ import annotations

import re
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from macbuild.errors import MacbuildError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "PLACEHOLDER",
    "Data",
    "convert",
    "filled",
    "from_json",
    "from_plain",
    "load_toml",
    "parse_toml",
    "read_text",
    "schema_of",
]

T = TypeVar("T")
PLACEHOLDER: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
"""What stands for something else in a string of a recipe: a fact of the release, or a folder of a component."""
MAX_FILE = 16 << 20
_FIRST_MEETING = threading.Lock()
MAX_DOTS = 1000  # For a dotted key the parser's time and memory grow with the square of its length.
_ENDLESS_KEY = re.compile(rf"^(?:[^.\n]*\.){{{MAX_DOTS + 1}}}", re.MULTILINE)


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of every record that a person writes or reads in a file."""


def schema_of(kind: type, title: str) -> dict[str, Any]:
    """Return the JSON schema of a msgspec struct, the same on every version of Python."""
    from inspect import cleandoc

    def dedented(value: Any) -> Any:
        if isinstance(value, list):
            return [dedented(item) for item in value]
        if not isinstance(value, dict):
            return value
        # Python 3.13 and later keep docstrings without their indentation, older ones with it.
        return {
            key: cleandoc(item) if key == "description" and isinstance(item, str) else dedented(item)
            for key, item in value.items()
        }

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**dialect, **dedented(msgspec.json.schema(kind))}


def read_text(path: Path, error: type[MacbuildError]) -> str:
    """Return the text of a small UTF-8 file; a file that cannot be read is an `error`."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise error(f"larger than {MAX_FILE >> 20} MiB", where=path)
        return path.read_text("utf-8")
    except OSError as cause:
        raise error(f"cannot be read: {cause.strerror}", where=path) from cause
    except UnicodeDecodeError as cause:
        raise error(f"is not UTF-8 at byte {cause.start}", where=path) from cause


def parse_toml(text: str, where: object, error: type[MacbuildError]) -> dict[str, Any]:
    """Return the table of a TOML text; a syntax error is an `error` with line and column."""
    if _ENDLESS_KEY.search(text):
        raise error(f"has a line with more than {MAX_DOTS} dots", where=where)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as cause:  # ValueError also for a number of too many digits
        raise error(f"not valid TOML: {cause}", where=where) from cause


def load_toml(path: Path, kind: type[T], error: type[MacbuildError]) -> T:
    """Read a TOML file as `kind`, a msgspec struct; every fault in it is an `error`."""
    return convert(parse_toml(read_text(path, error), path, error), kind, path, error)


def from_plain(data: object, kind: type[T]) -> T:
    """Turn plain data into `kind`; raises `msgspec.ValidationError`. Threads wait for each other.

    When two threads make msgspec analyse a new type at the same time, the interpreter crashes (seen with msgspec 0.21
    and CPython 3.11).
    """
    with _FIRST_MEETING:
        return msgspec.convert(data, kind)


def from_json(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Turn JSON into `kind`; raises `msgspec.MsgspecError`. Threads wait for each other, as in `from_plain`."""
    with _FIRST_MEETING:
        return msgspec.json.decode(data, type=kind)


def filled(values: Sequence[T], names: Mapping[str, str]) -> list[T]:
    """Return structs or strings with each `{name}` of a table replaced in every string; others stay as they are."""

    def fill(value: object) -> object:
        if isinstance(value, str):
            return PLACEHOLDER.sub(lambda match: names.get(match[1], match[0]), value)
        if isinstance(value, list):
            return [fill(item) for item in value]
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return value

    return [from_plain(fill(msgspec.to_builtins(value)), type(value)) for value in values]


def convert(data: object, kind: type[T], where: object, error: type[MacbuildError]) -> T:
    """Turn plain data into `kind`; an unknown key or a wrong type is an `error` that names it.

    Parameters
    ----------
    data
        The result of a TOML or JSON parser.
    kind
        A msgspec struct type, or a type made of them.
    where
        The file, for the error.
    error
        The class to raise.
    """
    try:
        return from_plain(data, kind)
    except msgspec.ValidationError as cause:
        problem = _problem(data, kind, "")
        if problem is not None:
            message, hint = problem
            raise error(message, where=where, hint=hint) from cause
        text = re.sub(r"`\$\.?([^`]*)`", lambda match: f"'{_place(match[1], data, kind)}'", str(cause))
        text = text.replace(" - at ''", "")
        raise error(text[0].lower() + text[1:], where=where) from cause


def _problem(data: object, kind: Any, path: str) -> tuple[str, str] | None:
    """Return the errors that msgspec reports without a hint: an unknown key, or an unknown member of a union."""
    tags = _tags(kind)
    kind = _variant(data, kind)
    if isinstance(data, list) and get_origin(kind) is list:
        inner = [(f"{path}[{index}]", item, get_args(kind)[0]) for index, item in enumerate(data)]
    elif isinstance(data, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = _keys(kind)
        for key in data:
            if key not in known:
                return f"unknown key {str(key)!r}{f' in {path}' if path else ''}", nearest(str(key), list(known))
        inner = [(f"{path}.{key}".lstrip("."), data[key], known[key]) for key in data]
    elif isinstance(data, dict) and get_origin(kind) is dict:
        inner = [(f"{path}.{key}".lstrip("."), value, get_args(kind)[1]) for key, value in data.items()]
    else:
        for field, names in tags.items():
            if isinstance(data, dict) and isinstance(data.get(field), str) and data[field] not in names:
                return f"invalid value {data[field]!r} - at '{path}.{field}'", nearest(data[field], names)
        return None
    return next((found for where, item, hint in inner if (found := _problem(item, hint, where))), None)


def _place(path: str, data: Any, kind: Any) -> str:
    """Return a path of msgspec with the keys of dictionaries, which are `[...]` in it, named."""
    named = ""
    for key, index in re.findall(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        kind = _variant(data, kind)
        if index == "...":
            _, inner = get_args(kind)
            name = next((name for name, value in data.items() if not _fits(value, inner)), None)
            if name is None:
                return f"{named}[...]"
            named, data, kind = f"{named}.{name}", data[name], inner
        elif index:
            named, data, kind = f"{named}[{index}]", data[int(index)], get_args(kind)[0]
        else:
            known = _keys(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else {}
            named, data, kind = f"{named}.{key}", data.get(key), known.get(key, object)
    return named.lstrip(".")


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _tags(kind: Any) -> dict[str, list[str]]:
    """Return the tags of a union's members by the key that holds them."""
    tags: dict[str, list[str]] = {}
    if get_origin(kind) in {Union, types.UnionType}:
        for member in get_args(kind):
            config = getattr(member, "__struct_config__", None)
            if config is not None and config.tag_field:
                tags.setdefault(config.tag_field, []).append(config.tag)
    return tags


@cache
def _keys(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the keys that a struct has in a file, each with its annotation."""
    hints = get_type_hints(kind)
    keys = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}
    tag = kind.__struct_config__.tag_field
    return {tag: object, **keys} if tag else keys


def _variant(data: object, kind: Any) -> Any:
    """Return the member of a union that the data is meant for: the one with its tag, or the only one of its shape."""
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind
    members = [member for member in get_args(kind) if member is not type(None)]
    if isinstance(data, dict):
        members = [member for member in members if member is not str]
        for member in members:
            config = getattr(member, "__struct_config__", None)
            if config is not None and config.tag_field and data.get(config.tag_field) == config.tag:
                return member
    return members[0] if len(members) == 1 else object
