"""Read files that people write: only regular ones, as UTF-8, and with errors that name the file and the line."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from macbuild.data import convert, parse_toml
from macbuild.data import read_text as read_plain
from macbuild.errors import MacbuildError, UsageError

__all__ = [
    "Keys",
    "check_given",
    "check_regular",
    "converted",
    "kind_of",
    "line_of",
    "load_document",
    "parse_document",
    "place",
    "place_of",
    "read_document",
    "strings",
    "title",
]

T = TypeVar("T")
Keys: TypeAlias = Sequence["str | int"]
"""The way to a value of a TOML file: names of keys, and positions in lists, from 0."""
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_MARKS: Final = {b"\xef\xbb\xbf": "UTF-8 with a byte order mark", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_PARSER = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_AT = re.compile(r"^unknown key '(?P<key>.*?)'(?: in (?P<table>.*))?$|'(?P<place>[^']*)'$")
_DEEPEST = 6


def kind_of(path: Path) -> str | None:
    """Return what a path is, as `a FIFO`, if it is not a regular file or a link to one; None for a regular file.

    Raises
    ------
    OSError
        There is nothing, or it cannot be looked at.
    """
    mode = path.stat().st_mode
    return None if stat.S_ISREG(mode) else next((name for test, name in _KINDS if test(mode)), "not a file")


def check_regular(path: Path, error: type[MacbuildError]) -> None:
    """Raise an `error` if a path is not a regular file: reading others may never end, or change something."""
    try:
        kind = kind_of(path)
    except (OSError, ValueError) as cause:
        raise error(f"cannot be read: {getattr(cause, 'strerror', cause)}", where=path) from cause
    if kind is not None:
        raise error(f"is {kind}, not a file", where=path)


def check_given(path: Path) -> Path:
    """Return a path of the command line that is a regular file; for anything else raise a `UsageError`."""
    if not os.path.lexists(path):
        raise UsageError("there is no such file", where=path)
    check_regular(path, UsageError)
    return path


def read_document(path: Path, error: type[MacbuildError]) -> str:
    """Return the text of a small UTF-8 file; raise an `error` for anything else."""
    check_regular(path, error)
    try:
        with path.open("rb") as file:
            start = file.read(3)
    except OSError as cause:
        raise error(f"cannot be read: {cause.strerror}", where=path) from cause
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            raise error(f"is {name}", where=path, hint="save it as UTF-8 without a byte order mark")
    return read_plain(path, error)


def parse_document(text: str, where: Path, error: type[MacbuildError]) -> dict[str, Any]:
    """Return the table of a TOML text; raise an `error` with file and line if its syntax is wrong."""
    try:
        return parse_toml(text, where, error)
    except error as problem:
        found = _PARSER.search(problem.message)
        if found is None:
            raise
        line = found[1] or str(len(text.splitlines()))
        rest = f" (column {found[2]})" if found[2] else " (the file ends too early)"
        message = problem.message[: found.start()] + rest
        raise error(message, where=f"{where}:{line}", hint=problem.hint) from problem


def load_document(path: Path, kind: type[T], error: type[MacbuildError]) -> T:
    """Read a TOML file as `kind`, a msgspec struct; raise an `error` with file and line for a fault in it."""
    return converted(parse_document(read_document(path, error), path, error), kind, path, error)


def converted(data: object, kind: type[T], path: Path, error: type[MacbuildError], below: Keys = ()) -> T:
    """Turn a table of a file into `kind`; raise an `error` with file and line for an unknown key or a wrong type.

    Parameters
    ----------
    data
        The table.
    kind
        A msgspec struct type.
    path
        The file.
    error
        The class to raise.
    below
        The keys that lead to the table in the file.
    """
    try:
        return convert(data, kind, path, error)
    except error as problem:
        where = place(path, *below, *_keys_in(problem.message, data))
        raise error(problem.message, where=where, hint=problem.hint) from problem


def title(keys: Keys) -> str:
    """Return keys as a person writes them: `layouts.archive[0].from`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")


def place(path: Path, *keys: str | int) -> str:
    """Return `file:line` of a key, or of the table that it would be in; only the file if that cannot be read."""
    try:
        return f"{path}:{line_of(read_document(path, MacbuildError), keys)}"
    except MacbuildError:
        return str(path)


def place_of(path: Path, *texts: str) -> str:
    """Return `file:line` of the first text that is a value in a TOML file, or else a part of one.

    It is only the file if none is there.

    Parameters
    ----------
    path
        The file.
    texts
        What to look for, in order of preference.
    """
    try:
        data = parse_document(read_document(path, MacbuildError), path, MacbuildError)
    except MacbuildError:
        return str(path)
    values = list(strings(data))
    for text in texts:
        same = [keys for keys, value in values if value == text]
        found = same or [keys for keys, value in values if text in value]
        if found:
            return place(path, *found[0])
    return str(path)


def strings(data: object, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each string of a table that lies at `keys`, with its own keys."""
    if isinstance(data, str):
        yield keys, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from strings(value, (*keys, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from strings(value, (*keys, index))


def line_of(text: str, keys: Keys) -> int:
    """Return the line, from 1, on which a key or a position in a list begins in a TOML text.

    A parser gives no positions, but statements parse one by one: the shortest run of lines that parses is the next one.

    Parameters
    ----------
    text
        Of a valid file.
    keys
        The key; if there is none, its nearest table counts.
    """
    statements = list(_statements(text.splitlines(keepends=True)))
    for length in range(len(keys), 0, -1):
        wanted = tuple(keys[:length])
        for first, lines, table, data in statements:
            if data is None and table[:length] == wanted:
                return first
            if data is not None and table == wanted[: len(table)] and _has(data, wanted[len(table) :]):
                return first + _within(lines, wanted[len(table) :])
    return 1


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, list[str], tuple[str | int, ...], dict[str, Any] | None]]:
    """Yield each statement: its line, its lines, its table, and what it sets there; None for the head of a table."""
    table: tuple[str | int, ...] = ()
    lengths: dict[tuple[str | int, ...], int] = {}
    first, statement = 0, list[str]()
    for number, line in enumerate(lines):
        if not statement:
            first = number
        statement.append(line)
        data = _parse("".join(statement))
        if data is None:
            continue
        if line.lstrip().startswith("[") and first == number:
            table = _table(data, lengths)
            yield first + 1, statement, table, None
        elif data:
            yield first + 1, statement, table, data
        statement = []


def _table(head: dict[str, Any], lengths: dict[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
    """Return the keys of the table that a head begins, with positions in lists of tables, whose lengths are counted."""
    found: tuple[str | int, ...] = ()
    inner: object = head
    while inner and isinstance(inner, dict):
        ((key, inner),) = inner.items()
        found = (*found, key)
        if isinstance(inner, list):
            lengths[found] = lengths.get(found, 0) + 1
        if found in lengths:
            found = (*found, lengths[found] - 1)
    return found


def _within(lines: Sequence[str], keys: Keys) -> int:
    """Return the line of a statement, from 0, on which a key begins; open brackets are closed after each line."""
    start = 0
    for end in range(1, len(lines)):
        begun = _closed("".join(lines[:end]))
        if begun is not None:
            if _has(begun, keys):
                return start
            start = end
    return start


def _closed(text: str) -> dict[str, Any] | None:
    """Return what the start of a statement holds once its brackets are closed; None if it ends within a string."""
    for depth in range(_DEEPEST):
        for outer in product("]}", repeat=depth):
            data = _parse(text + "]" + "".join(outer))
            if data is not None:
                return data
    return None


def _parse(text: str) -> dict[str, Any] | None:
    try:
        return parse_toml(text, "", MacbuildError)
    except MacbuildError:
        return None


def _has(data: object, keys: Keys) -> bool:
    for key in keys:
        try:
            data = data[key]  # type: ignore[index]  # what has no keys raises
        except (LookupError, TypeError):
            return False
    return True


def _keys_in(message: str, data: object) -> list[str | int]:
    """Return the keys that an error of `convert` names."""
    found = _AT.search(message)
    if found is None:
        return []
    if found["place"] is not None:
        return next(_resolved(found["place"], data), [])
    return [*next(_resolved(found["table"] or "", data), []), found["key"]]


def _resolved(text: str, data: object) -> Iterator[list[str | int]]:
    """Yield the keys that a path such as `layouts.archive[0].from` may stand for; keys may have dots in them."""
    text = text.removeprefix(".")
    if not text:
        yield []
    elif isinstance(data, list) and (index := re.match(r"\[(\d+)\]", text)):
        position = int(index[1])
        if position < len(data):
            yield from ([position, *rest] for rest in _resolved(text[index.end() :], data[position]))
    elif isinstance(data, dict):
        for key, value in data.items():
            if text == key or text.startswith((f"{key}.", f"{key}[")):
                yield from ([key, *rest] for rest in _resolved(text[len(key) :], value))
