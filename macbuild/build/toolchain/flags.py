"""Translate the flags that a project passes into flags of the linker for macOS, by the table in flags.toml."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from macbuild.build.toolchain.exportlists import read_export_list, read_version_script
from macbuild.errors import ToolError

__all__ = [
    "DYLIB",
    "Action",
    "Place",
    "Rule",
    "System",
    "Translation",
    "expand",
    "load_rules",
    "rules_from",
    "translate",
]

Action: TypeAlias = Literal["accept", "translate", "drop", "refuse"]
Place: TypeAlias = Literal["linker", "link", "compile"]
TABLE = Path(__file__).with_name("flags.toml")
_MAX_NESTING = 8
# Flags of the compiler whose next word is theirs, so that it is not read as a flag itself.
# fmt: off
_TAKES_WORD = frozenset({
    "-o", "-x", "-I", "-L", "-F", "-D", "-U", "-include", "-imacros", "-isystem", "-iquote", "-idirafter",
    "-iframework", "-iprefix", "-iwithprefix", "-MF", "-MT", "-MQ", "-Xclang", "-Xpreprocessor", "-Xassembler",
    "-install_name", "-current_version", "-compatibility_version", "-u", "-e", "-mllvm", "-weak_library",
    "-framework", "-A", "-b", "-V", "-aux-info", "-dumpdir"
})
# fmt: on
# Flags by which a compiler makes a dylib.
DYLIB = frozenset({"-shared", "-dynamiclib"})


class Rule(NamedTuple):
    """One row of the table; the fields are explained there. `handler` is its `with`."""

    flag: str
    on: Place
    action: Action
    value: bool = False
    to: Sequence[str] = ()
    handler: str = ""
    note: str = ""
    foreign: bool = False


@dataclass(frozen=True)
class System:
    """The libraries of the system to link against.

    Parameters
    ----------
    arch
        The one architecture, `arm64` or `x86_64`.
    libcxx
        What links the C++ library of the system: a stub's path for zig; nothing for Apple's driver, which adds it.
    libraries, frameworks
        Paths of stubs by the name after `-l` and after `-framework`; None where the linker finds them in an SDK.
    """

    arch: str
    libcxx: str | None = None
    libraries: Mapping[str, str] | None = None
    frameworks: Mapping[str, str] | None = None


@dataclass
class Translation:
    """The call that the compiler gets.

    Parameters
    ----------
    arguments
        What to pass to the compiler.
    keep
        Names that stay exported, as globs with the leading underscore; None when the call does not say.
    notes
        Flags that were left out, and why.
    libcxx
        True if a C++ call still needs the system's C++ library.
    flat
        True if symbols that Python's process has may be undefined, which must be checked after the link.
    """

    arguments: list[str] = field(default_factory=list)
    keep: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    libcxx: bool = True
    flat: bool = False


def load_rules(toolchain: str, *, foreign: bool = False) -> tuple[Rule, ...]:
    """Return the table for one toolchain, `zig` or `apple`; rows for foreign projects only when it is one."""
    from macbuild.data import load_toml

    rules = []
    for row in load_toml(TABLE, dict[str, list[dict[str, object]]], ToolError)["rule"]:
        entry = dict(row)
        override = entry.pop("apple", None)
        if override is not None and toolchain == "apple":
            entry["action"] = override
        if entry.get("foreign") and not foreign:
            continue
        entry["handler"] = entry.pop("with", "")
        rules.append(Rule(**entry))  # type: ignore[arg-type] # the tests check every row
    return tuple(rules)


def rules_from(rows: Iterable[Sequence[object]]) -> tuple[Rule, ...]:
    """Return rules that were written as JSON."""
    return tuple(Rule(*row) for row in rows)  # type: ignore[arg-type] # written from rules


def expand(arguments: Sequence[str], depth: int = 0) -> Iterator[str]:
    """Yield the arguments with response files (`@file`) replaced by what is in them, as GCC and clang do.

    Raises
    ------
    ToolError
        Response files name each other in a circle.
    """
    for argument in arguments:
        path = Path(argument[1:])
        if argument.startswith("@") and len(argument) > 1 and path.is_file():
            if depth == _MAX_NESTING:
                raise ToolError("response files are nested too deep", where=path)
            yield from expand(_words(path), depth + 1)
        else:
            yield argument


def translate(
    arguments: Sequence[str], rules: Sequence[Rule], system: System, *, kind: Literal["link", "compile"]
) -> Translation:
    """Translate the arguments of one call for the compiler.

    Parameters
    ----------
    arguments
        As the project passes them.
    rules
        The table.
    system
        What there is to link against.
    kind
        `link` or `compile`, what the call does.

    Raises
    ------
    ToolError
        A flag is refused, or a file that a flag names cannot be read.
    """
    words = list(expand(arguments))
    work = _Work(rules, system, kind, words)
    work.run()
    return work.result


class _Table:
    """Rules by flag."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.exact: dict[tuple[Place, str], Rule] = {}
        self.globs: list[tuple[str, Rule]] = []
        for rule in rules:
            name = _plain(rule.flag) if rule.on == "linker" else rule.flag
            if name.endswith("*"):
                self.globs.append((name, rule))
            else:
                self.exact[rule.on, name] = rule

    def find(self, place: Place, word: str) -> tuple[Rule | None, str | None]:
        """Return the rule for a word, and the value that is part of the word."""
        name = _plain(word) if place == "linker" else word
        rule = self.exact.get((place, name))
        if rule is not None:
            return rule, None
        head, equals, tail = name.partition("=")
        rule = self.exact.get((place, head))
        if equals and rule is not None and rule.value:
            return rule, tail
        for pattern, candidate in self.globs:
            if candidate.on == place and fnmatchcase(name, pattern):
                return candidate, None
        return None, None


class _Work:
    """One call that the table is applied to."""

    def __init__(
        self, rules: Sequence[Rule], system: System, kind: Literal["link", "compile"], words: list[str]
    ) -> None:
        self.table = _Table(rules)
        self.system = system
        self.kind: Literal["link", "compile"] = kind
        self.words = words
        self.result = Translation()
        self.whole_archive = False
        self.position = 0

    def run(self) -> None:
        while self.position < len(self.words):
            word = self._next()
            if word.startswith("-Wl,"):
                self._linker(word[4:].split(","))
            elif word == "-Xlinker":
                self._linker([self._next(word)])
            else:
                self._driver(word)
        if self.kind == "link":
            self._name_dylib()

    def _next(self, owner: str | None = None) -> str:
        """Return the next word, the value of `owner` if there is one."""
        if self.position == len(self.words):
            raise ToolError(f"{owner} has no value", where="the linker's arguments")
        word = self.words[self.position]
        self.position += 1
        return word

    def _next_linker(self, owner: str, waiting: list[str]) -> str:
        """Return the linker's next word, which may be in a later -Wl or -Xlinker."""
        if waiting:
            return waiting.pop(0)
        word = self._next(owner)
        if word == "-Xlinker":
            return self._next(owner)
        if word.startswith("-Wl,"):
            waiting[:] = word[4:].split(",")
            return waiting.pop(0)
        # A compiler hands a plain word on in its place, where a linker takes it as the value.
        if word.startswith("-"):
            raise ToolError(f"{owner} has no value", where="the linker's arguments")
        return word

    def _linker(self, waiting: list[str]) -> None:
        if self.kind == "compile":
            return  # A compiler does not look at them.
        while waiting:
            word = waiting.pop(0)
            if not word.startswith("-"):
                self._file(word)
                continue
            rule, value = self.table.find("linker", word)
            if rule is None:
                hint = "write it in a form of Apple's linker, or ask for a row in macbuild/build/toolchain/flags.toml"
                raise ToolError(f"the linker flag {word} is not known", where="flags", hint=hint)
            if rule.value and value is None:
                value = self._next_linker(word, waiting)
            if rule.handler == "platform_version" and rule.action == "translate":
                for _ in range(3):
                    self._next_linker(word, waiting)
            self._apply(rule, word, value, as_linker([word] if value is None else [word.partition("=")[0], value]))

    def _driver(self, word: str) -> None:
        if not word.startswith("-"):
            self._file(word)
            return
        rule, value = self.table.find(self.kind, word)
        if rule is None:
            self.result.arguments.append(word)
            if word in _TAKES_WORD:
                self.result.arguments.append(self._next(word))
            return
        if rule.value and value is None:
            value = self._next(word)
        self._apply(rule, word, value, [word] if value is None else [word, value])

    def _apply(self, rule: Rule, word: str, value: str | None, plain: list[str]) -> None:
        shown = " ".join(part for part in (word.partition("=")[0] if value else word, value) if part)
        if rule.action == "accept":
            self.result.arguments += plain
        elif rule.action == "refuse":
            raise ToolError(f"the flag {shown} cannot be used", where="flags", hint=rule.note)
        elif rule.action == "drop":
            self.result.notes.append(f"{shown} left out: {rule.note}")
        elif rule.handler:
            HANDLERS[rule.handler](self, value if value is not None else word)
        else:
            self.result.arguments += [part.replace("{value}", value or "") for part in rule.to]

    def _file(self, word: str) -> None:
        if self.whole_archive and word.endswith(".a"):
            self.result.arguments += as_linker(["-force_load", word])
        else:
            self.result.arguments.append(word)

    def _name_dylib(self) -> None:
        """Give a dylib without an install name one that does not depend on where it is written."""
        arguments = self.result.arguments
        if "-install_name" not in arguments and DYLIB & set(arguments) and "-o" in arguments[:-1]:
            output = arguments[arguments.index("-o") + 1]
            arguments += ["-install_name", f"@rpath/{output.rpartition('/')[2]}"]

    def find_archive(self, name: str) -> str | None:
        """Return the path of `lib<name>.a` in the folders given by -L."""
        pairs = zip(self.words, [*self.words[1:], ""], strict=True)
        folders = [word[2:] or after for word, after in pairs if word.startswith("-L")]
        return next((path for folder in folders if os.path.isfile(path := f"{folder}/lib{name}.a")), None)


def _plain(word: str) -> str:
    """Return a linker's flag with one dash: `-soname` and `--soname` are the same to GNU ld."""
    return word[1:] if word.startswith("--") else word


def _read(path: Path) -> str:
    from macbuild.data import read_text

    return read_text(path, ToolError)


def _words(path: Path) -> list[str]:
    try:
        return shlex.split(_read(path))
    except ValueError as error:
        raise ToolError(f"is not a response file: {error}", where=path) from error


def as_linker(words: Sequence[str]) -> list[str]:
    """Return words for the linker as arguments of the compiler."""
    if any("," in word for word in words):
        return [part for word in words for part in ("-Xlinker", word)]
    return ["-Wl," + ",".join(words)]


def _keep(work: _Work, names: Iterable[str]) -> None:
    work.result.keep = [*(work.result.keep or ()), *names]


def _version_script(work: _Work, value: str) -> None:
    path = Path(value)
    _keep(work, read_version_script(_read(path), path))


def _exported_symbols_list(work: _Work, value: str) -> None:
    path = Path(value)
    _keep(work, read_export_list(_read(path)))


def _exported_symbol(work: _Work, value: str) -> None:
    _keep(work, [value])


def _libcxx(work: _Work, value: str) -> None:
    del value
    work.result.arguments.append(work.system.libcxx or "-lc++")
    work.result.libcxx = False


def _no_libcxx(work: _Work, value: str) -> None:
    if work.system.libcxx is None:
        work.result.arguments.append(value)
    work.result.libcxx = False


def _library(work: _Work, value: str) -> None:
    name = value[2:] or work._next(value)
    stub = (work.system.libraries or {}).get(name)
    archive = work.find_archive(name) if work.whole_archive or stub else None
    if archive:
        work.result.arguments += as_linker(["-force_load", archive]) if work.whole_archive else [archive]
    elif work.whole_archive:
        raise ToolError(f"lib{name}.a is in no folder given by -L", where="--whole-archive")
    else:
        work.result.arguments.append(stub or f"-l{name}")


def _framework(work: _Work, value: str) -> None:
    known = work.system.frameworks
    if known is None:
        work.result.arguments += ["-framework", value]
        return
    name = value.partition(",")[0]
    if name not in known:
        hint = "collect evidence from a wheel that uses it: macbuild stubs collect WHEEL"
        raise ToolError(f"no evidence stub for framework {name}", where="-framework", hint=hint)
    work.result.arguments.append(known[name])


def _weak_framework(work: _Work, value: str) -> None:
    if work.system.frameworks is None:
        work.result.arguments += ["-weak_framework", value]
        return
    _framework(work, value)
    work.result.arguments.pop()
    folder = Path(work.system.frameworks[value]).parent.parent
    work.result.arguments += [f"-F{folder}", "-weak_framework", value]


def _whole_archive(work: _Work, value: str) -> None:
    del value
    work.whole_archive = True


def _no_whole_archive(work: _Work, value: str) -> None:
    del value
    work.whole_archive = False


def _soname(work: _Work, value: str) -> None:
    if "-install_name" not in work.words:
        name = value if value.startswith("@") else f"@rpath/{value.rpartition('/')[2]}"
        work.result.arguments += ["-install_name", name]


def _rpath(work: _Work, value: str) -> None:
    for path in value.split(":"):
        name = path.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", "@loader_path")
        if name.startswith(("@loader_path", "@executable_path", "@rpath")):
            work.result.arguments += as_linker(["-rpath", name.rstrip("/")])
        elif path:
            work.result.notes.append(f"-rpath {path} left out: a folder of this machine")


def _bundle(work: _Work, value: str) -> None:
    del value
    work.result.arguments.append("-dynamiclib")


def _undefined(work: _Work, value: str) -> None:
    if value == "dynamic_lookup":
        work.result.arguments += as_linker(["-undefined", value])
        work.result.flat = True
    elif value == "error":
        work.result.notes.append("-undefined error left out: it is the default")
    else:
        hint = "link the library that has the symbols, or its stub; GNU ld's --undefined is -u _symbol"
        raise ToolError(f"the flag -undefined {value} cannot be used", where="flags", hint=hint)


def _platform_version(work: _Work, value: str) -> None:
    work.result.notes.append(f"{value} left out: the target decides")


def _filelist(work: _Work, value: str) -> None:
    path, _, folder = value.partition(",")
    for line in _read(Path(path)).splitlines():
        if line.strip():
            work._file(os.path.join(folder, line))


def _arch(work: _Work, value: str) -> None:
    if value != work.system.arch:
        hint = "build for it in another run; macbuild merges the results"
        raise ToolError(f"the flag -arch {value} cannot be used for {work.system.arch}", where="flags", hint=hint)


HANDLERS: Mapping[str, Callable[[_Work, str], None]] = {
    "arch": _arch,
    "bundle": _bundle,
    "exported_symbol": _exported_symbol,
    "exported_symbols_list": _exported_symbols_list,
    "filelist": _filelist,
    "framework": _framework,
    "libcxx": _libcxx,
    "library": _library,
    "no_libcxx": _no_libcxx,
    "no_whole_archive": _no_whole_archive,
    "platform_version": _platform_version,
    "rpath": _rpath,
    "soname": _soname,
    "undefined": _undefined,
    "version_script": _version_script,
    "weak_framework": _weak_framework,
    "whole_archive": _whole_archive,
}
