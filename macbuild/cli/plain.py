"""Read a plain command line without Typer's parser, which loads pydantic: half of the time that a start takes.

A plain command line has only flags as they are declared, each with its value in the next word or after an equals sign,
and arguments. Everything else, also every mistake and every request for help, is left to Typer, so that messages come
from one place. The declarations of a command serve both.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo

__all__ = ["read_words"]

_SIMPLE = (str, Path, int, bool)
# What an option may say beside its name, flags and texts, which do not change how a word is read.
_HARMLESS = frozenset(
    {"autocompletion", "count", "default", "help", "metavar", "param_decls", "rich_help_panel", "show_default"}
)


@dataclass
class _Parameter:
    """How one parameter is read: by which flags, as which type, and whether it takes several words."""

    name: str
    kind: type
    many: bool
    flags: dict[str, bool] = field(default_factory=dict)
    counts: bool = False


def read_words(signature: inspect.Signature, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of a command's parameters by name, or None if the words are not plain.

    Parameters
    ----------
    signature
        Parameters of the command, each annotated with a Typer option or argument.
    words
        The command line after the name of the command.
    """
    known = [parameter for entry in signature.parameters.values() if (parameter := _parameter(entry)) is not None]
    arguments = sum(isinstance(_info(entry), ArgumentInfo) for entry in signature.parameters.values())
    if arguments != sum(not entry.flags for entry in known):
        return None
    flags = {flag: (entry, value) for entry in known for flag, value in entry.flags.items()}
    values: dict[str, Any] = {name: entry.default for name, entry in signature.parameters.items()}
    loose: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            loose.append(word)
            continue
        flag, equals, text = word.partition("=")
        entry, value = flags.get(flag, (None, False))
        if entry is None or (equals and (entry.kind is bool or entry.counts or not flag.startswith("--"))):
            return None
        if entry.counts:
            values[entry.name] += 1
        elif entry.kind is bool:
            values[entry.name] = value
        else:
            if not equals and not rest:
                return None
            item = _convert(entry, text if equals else rest.pop(0), is_next_word=not equals)
            if item is None:
                return None
            values[entry.name] = [*(values[entry.name] or ()), item] if entry.many else item
    if not _take_arguments([entry for entry in known if not entry.flags], loose, values):
        return None
    return None if inspect.Parameter.empty in values.values() else values


def _take_arguments(arguments: Sequence[_Parameter], words: Sequence[str], values: dict[str, Any]) -> bool:
    """Give each argument its word, a list the rest of them; tell whether that is possible."""
    rest = list(words)
    for index, entry in enumerate(arguments):
        last = index == len(arguments) - 1
        if entry.many and not last:
            return False
        taken, rest = (rest, []) if entry.many else (rest[:1], rest[1:])
        items = [_convert(entry, word, is_next_word=True) for word in taken]
        if None in items:
            return False
        if items:
            values[entry.name] = items if entry.many else items[0]
    return not rest


def _convert(entry: _Parameter, text: str, *, is_next_word: bool) -> str | Path | int | None:
    """Return the value of a word, None for one that needs a closer look."""
    if is_next_word and text.startswith("-"):
        return None
    if entry.kind is int:
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
    return Path(text) if entry.kind is Path else text


def _parameter(entry: inspect.Parameter) -> _Parameter | None:
    """Return how a parameter is read, None if only Typer knows."""
    info = _info(entry)
    if info is None or not _is_harmless(info):
        return None
    kind = get_args(entry.annotation)[0]
    if get_origin(kind) is UnionType:
        kinds = [each for each in get_args(kind) if each is not NoneType]
        kind = kinds[0] if len(kinds) == 1 else None
    many = get_origin(kind) is list
    kind = get_args(kind)[0] if many else kind
    if kind not in _SIMPLE or (many and kind is bool):
        return None
    parameter = _Parameter(entry.name, kind, many)
    if isinstance(info, OptionInfo):
        if info.count and (many or kind is not int):
            return None
        parameter.counts = bool(info.count)
        parameter.flags = _flags(entry.name, info)
    elif kind is bool:
        return None
    return parameter


def _info(entry: inspect.Parameter) -> OptionInfo | ArgumentInfo | None:
    found = [each for each in get_args(entry.annotation)[1:] if isinstance(each, OptionInfo | ArgumentInfo)]
    return found[0] if len(found) == 1 else None


def _is_harmless(info: OptionInfo | ArgumentInfo) -> bool:
    plain = type(info)()
    differing = {name for name, value in vars(info).items() if value != getattr(plain, name)}
    # An option with two words for a value has a metavar of two words.
    return differing <= _HARMLESS and len((info.metavar or "").split()) <= 1


def _flags(name: str, info: OptionInfo) -> dict[str, bool]:
    """Return the flags of an option; the second of a pair such as `--preserve/--no-preserve` means False."""
    # Typer keeps the first flag where a default is kept outside of `Annotated`.
    declared = [*([info.default] if isinstance(info.default, str) else []), *(info.param_decls or ())]
    flags: dict[str, bool] = {}
    for words in declared or [f"--{name.replace('_', '-')}"]:
        yes, _, no = words.partition("/")
        flags |= {yes.strip(): True} | ({no.strip(): False} if no else {})
    return flags
