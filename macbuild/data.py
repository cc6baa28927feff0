"""Typed data from TOML and JSON files: what is wrong with it becomes an error that names file, key and nearest key."""

from __future__ import annotations

import difflib
import re
import sys
import types
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from macbuild.errors import MacbuildError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Data", "convert", "load_toml", "nearest", "parse_toml", "read_text"]

T = TypeVar("T")
MAX_FILE = 16 << 20


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of every record that a person writes or reads in a file."""


def nearest(word: str, choices: list[str]) -> str:
    """Return a hint ` (did you mean ...?)`, or all the choices where none is near."""
    found = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else f"known: {', '.join(sorted(choices))}"


def read_text(path: Path, error: type[MacbuildError]) -> str:
    """Return the text of a small UTF-8 file; what cannot be read is an `error`."""
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
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as cause:  # ValueError also for a number of too many digits
        raise error(f"not valid TOML: {cause}", where=where) from cause


def load_toml(path: Path, kind: type[T], error: type[MacbuildError]) -> T:
    """Read a TOML file as `kind`, a msgspec struct; everything that is wrong with it is an `error`."""
    return convert(parse_toml(read_text(path, error), path, error), kind, path, error)


def convert(data: object, kind: type[T], where: object, error: type[MacbuildError]) -> T:
    """Turn plain data into `kind`; an unknown key or a wrong type is an `error` that names it.

    Parameters
    ----------
    data
        What a TOML or JSON parser gave.
    kind
        A msgspec struct type, or a type made of them.
    where
        The file, for the error.
    error
        The class to raise.
    """
    unknown = _unknown_key(data, kind, "")
    if unknown is not None:
        path, key, known = unknown
        place = f" in {path}" if path else ""
        raise error(f"unknown key {key!r}{place}", where=where, hint=nearest(key, known))
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as cause:
        text = re.sub(r"`\$\.?([^`]*)`", r"'\1'", str(cause)).replace(" - at ''", "")
        raise error(text[0].lower() + text[1:], where=where) from cause


def _unknown_key(data: object, kind: Any, path: str) -> tuple[str, str, list[str]] | None:  # noqa: ANN401 - any annotation
    kind = _variant(data, kind)
    if isinstance(data, list):
        inner = [(f"{path}[{index}]", item, (get_args(kind) or (object,))[0]) for index, item in enumerate(data)]
    elif isinstance(data, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        info = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
        if kind.__struct_config__.tag_field:
            info[kind.__struct_config__.tag_field] = ""
        hints = get_type_hints(kind)
        for key in data:
            if key not in info:
                return path, str(key), [name for name in info]  # noqa: C416 - a list of keys
        inner = [(f"{path}.{key}".lstrip("."), data[key], hints.get(info[key], object)) for key in data]
    elif isinstance(data, dict) and get_origin(kind) is dict:
        inner = [(f"{path}.{key}".lstrip("."), value, get_args(kind)[1]) for key, value in data.items()]
    else:
        return None
    return next((found for where, item, hint in inner if (found := _unknown_key(item, hint, where))), None)


def _variant(data: object, kind: Any) -> Any:  # noqa: ANN401 - any annotation
    """Return the member of a union that the data is meant for: the one with its tag, or the only one of its shape."""
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind
    members = [member for member in get_args(kind) if member is not type(None)]
    if isinstance(data, dict):
        for member in members:
            config = getattr(member, "__struct_config__", None)
            if config is not None and config.tag_field and data.get(config.tag_field) == config.tag:
                return member
    return members[0] if len(members) == 1 else object
