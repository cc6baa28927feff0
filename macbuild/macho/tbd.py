"""Write and read text stubs (`.tbd`, version 4): the facts of a dylib that a linker needs.

Source: the TextAPI library of LLVM (`TextStub.cpp`), which defines the keys; the files are a small subset of YAML.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from macbuild.errors import MachOError
from macbuild.macho.constants import LC
from macbuild.macho.image import Image
from macbuild.macho.symbols import read_exports

__all__ = ["MAX_TEXT", "Stub", "read_stub", "read_stubs", "stub_of", "write_stub"]

MAX_TEXT = 1 << 26  # Characters; the stub of LibTorch, the largest known, takes 2^23.
_MAX_DOCUMENTS = 1000  # That of zig's libSystem.tbd, which has every library below it inside, has 40.
_MAX_TARGETS = 64

_CLASS, _METACLASS, _EH_TYPE, _IVAR = "_OBJC_CLASS_$_", "_OBJC_METACLASS_$_", "_OBJC_EHTYPE_$_", "_OBJC_IVAR_$_"
_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "symbols": ("",),
    "weak-symbols": ("",),
    "thread-local-symbols": ("",),
    "objc-classes": (_CLASS, _METACLASS),
    "objc-eh-types": (_EH_TYPE,),
    "objc-ivars": (_IVAR,),
}
_SCALARS = frozenset({"tbd-version", "install-name", "current-version", "compatibility-version", "swift-abi-version"})
_LISTS = frozenset({"targets", "flags"})
# Keys of the entries of each section; `targets` and `target` mean the same.
_SECTIONS: Mapping[str, frozenset[str]] = {
    "exports": frozenset({"targets", *_PREFIXES}),
    "reexports": frozenset({"targets", *_PREFIXES}),
    "undefineds": frozenset({"targets", *_PREFIXES}),
    "reexported-libraries": frozenset({"targets", "libraries"}),
    "allowable-clients": frozenset({"targets", "clients"}),
    "parent-umbrella": frozenset({"targets", "umbrella"}),
    "uuids": frozenset({"target", "value"}),
}
_ARCHS = ("arm64", "arm64e", "x86_64")

_BLANK = re.compile(r"(?:[ ]*(?:#[^\n]*)?\n)*")
_START = re.compile(r"--- !(tapi-tbd(?:-v[0-9])?)[ ]*\n")
_END = re.compile(r"(?:\.\.\.[ ]*(?:\n|\Z))?")
_KEY = re.compile(r"([a-z][a-z-]{0,30}):[ ]*")
_DASH = re.compile(r"([ ]{0,8})-[ ]+")
_INDENT = re.compile(r"[ ]*")
_VALUE = r"'((?:[^'\n]|'')*)'|\"([^\"\\\n]*)\"|([^\s,\[\]{}'\"#&*!|>%@`:?-][^\s,\[\]{}]*)"
_SCALAR = re.compile(rf"(?:{_VALUE})[ ]*(?:\n|\Z)")
_ITEM = re.compile(rf"\s*(?:{_VALUE})\s*([,\]])")
_CLOSE = re.compile(r"\s*\][ ]*(?:\n|\Z)")
_LINE_END = re.compile(r"[ ]*(?:\n|\Z)")
_PLAIN = re.compile(r"_[A-Za-z0-9_.]*")
_VERSION = re.compile(r"(\d{1,5})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?", re.ASCII)

_Value: TypeAlias = str | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """The facts of a slice of a dylib for macOS that a linker needs.

    Parameters
    ----------
    install_name
        The name that is recorded in files linked with it.
    arch
        `arm64`, `arm64e` or `x86_64`.
    symbols
        Exported names as a linker sees them, thus with `_OBJC_CLASS_$_` and its kin.
    weak, thread_local
        Those of them that are weak definitions and thread-local variables.
    reexports
        Install names of the libraries whose exports it also offers.
    current, compatibility
        Versions, as X, X.Y or X.Y.Z.
    """

    install_name: str
    arch: str
    symbols: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    thread_local: frozenset[str] = frozenset()
    reexports: tuple[str, ...] = ()
    current: str = "1"
    compatibility: str = "1"


def stub_of(image: Image) -> Stub:
    """Return the stub of a dylib, so that a linker does not need the dylib.

    Raises
    ------
    MachOError
        If the image has no install name, or its exports are malformed.
    """
    if image.id is None:
        raise MachOError(f"a {image.kind} without an install name has no stub", where=image.where)
    exports = read_exports(image)
    return Stub(
        install_name=image.id.name,
        arch=image.arch,
        symbols=_decoded(exports.names),
        weak=_decoded(exports.weak),
        thread_local=_decoded(exports.thread_local),
        reexports=tuple(dylib.name for dylib in image.dylibs if dylib.cmd == LC.REEXPORT_DYLIB),
        current=_unpacked(image.id.current_version),
        compatibility=_unpacked(image.id.compatibility_version),
    )


def _decoded(names: Iterable[bytes]) -> frozenset[str]:
    return frozenset(name.decode("utf-8", "surrogateescape") for name in names)


def _unpacked(version: int) -> str:
    return f"{version >> 16}.{version >> 8 & 0xFF}.{version & 0xFF}"


def write_stub(stub: Stub) -> str:
    """Return the text of a stub, the same for equal stubs.

    Raises
    ------
    MachOError
        If a name has characters that a stub cannot hold, or a version is malformed.
    """
    where = f"stub of {stub.install_name}"
    for text in (stub.current, stub.compatibility):
        if not _is_version(text):
            raise MachOError(f"{text!r} is not a version", where=where)
    try:
        return "".join(_lines(stub))
    except ValueError as error:
        raise MachOError(f"{error} cannot be written to a stub", where=where) from None


def _lines(stub: Stub) -> Iterator[str]:
    target = f"[ {stub.arch}-macos ]"
    yield f"--- !tapi-tbd\ntbd-version:     4\ntargets:         {target}\n"
    yield f"install-name:    {_quoted(stub.install_name)}\n"
    yield f"current-version: {stub.current}\ncompatibility-version: {stub.compatibility}\n"
    if stub.reexports:
        yield f"reexported-libraries:\n  - targets:         {target}\n"
        yield _sequence("libraries", [_quoted(name) for name in stub.reexports])
    lists = [(key, names) for key, names in _by_key(stub).items() if names]
    if lists:
        yield f"exports:\n  - targets:         {target}\n"
        for key, names in lists:
            yield _sequence(key, [_scalar(name) for name in sorted(names)])
    yield "...\n"


def _by_key(stub: Stub) -> dict[str, Collection[str]]:
    """Return the names under each key; the two symbols of an Objective-C class become one name if both exist."""
    special = stub.weak | stub.thread_local
    plain = stub.symbols - special
    found: dict[str, Collection[str]] = {}
    for key in ("objc-classes", "objc-eh-types", "objc-ivars"):
        first, *others = _PREFIXES[key]
        names = {name[len(first) :] for name in plain if name.startswith(first)} - {""}
        names = {name for name in names if all(other + name in plain for other in others)}
        plain -= {prefix + name for prefix in (first, *others) for name in names}
        found[key] = names
    return {
        "symbols": plain,
        **found,
        "weak-symbols": stub.weak - stub.thread_local,
        "thread-local-symbols": stub.thread_local,
    }


def _sequence(key: str, items: Sequence[str]) -> str:
    start = f"    {key}:".ljust(21)
    return f"{start}[ {(',' + chr(10) + ' ' * 23).join(items)} ]\n"


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    if not text.isprintable() or not text:
        raise ValueError(repr(text))
    return "'" + text.replace("'", "''") + "'"


def _is_version(text: str) -> bool:
    match = _VERSION.fullmatch(text)
    return match is not None and all(
        int(part or 0) <= most for part, most in zip(match.groups(), (0xFFFF, 255, 255), strict=True)
    )


def read_stub(text: str, where: str = "<memory>", arch: str | None = None) -> Stub:
    """Read the stub of one library: the first document, for an architecture or for the first one that it has.

    Raises
    ------
    MachOError
        If the text is not a stub of version 4, or has nothing for macOS on this architecture; `where` names the line.
    """
    stubs = read_stubs(text, where)
    found = [
        stub for stub in stubs if stub.install_name == stubs[0].install_name and (arch is None or stub.arch == arch)
    ]
    if not found:
        raise MachOError(f"is not a stub for macOS on {arch or 'any Mac'}", where=where)
    return found[0]


def read_stubs(text: str, where: str = "<memory>") -> tuple[Stub, ...]:
    """Read all stubs of a file: one for each document and each architecture for macOS, in order.

    Raises
    ------
    MachOError
        If the text is not a stub of version 4; `where` names the line.
    """
    if len(text) > MAX_TEXT:
        raise MachOError(f"{len(text)} characters are too many for a stub", where=where)
    reader = _Reader(text, where)
    documents = reader.documents()
    return tuple(stub for document in documents for stub in _interpret(document, reader))


class _Document(NamedTuple):
    """A document as it was read; `at` is the position of its start."""

    at: int
    fields: dict[str, _Value]
    sections: dict[str, list[dict[str, _Value]]]


class _Reader:
    """A cursor over the text. It accepts a small part of YAML."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.where = where
        self.at = 0

    def error(self, message: str, at: int | None = None) -> MachOError:
        line = self.text.count("\n", 0, self.at if at is None else at) + 1
        return MachOError(message, where=f"{self.where}:{line}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def documents(self) -> list[_Document]:
        found: list[_Document] = []
        self.match(_BLANK)
        while self.at < len(self.text):
            if len(found) == _MAX_DOCUMENTS:
                raise self.error(f"more than {_MAX_DOCUMENTS} documents in one stub")
            found.append(self._document())
            self.match(_BLANK)
        if not found:
            raise MachOError("an empty stub", where=self.where)
        return found

    def _document(self) -> _Document:
        document = _Document(self.at, {}, {})
        found = self.match(_START)
        if found is None or found[1] != "tapi-tbd":
            raise self.error("a document of a text stub (.tbd) of version 4 is expected here", document.at)
        while True:
            self.match(_BLANK)
            if self.at == len(self.text) or self.text.startswith(("---", "..."), self.at):
                self.match(_END)
                return document
            start = self.at
            key = self._key()
            if key in document.fields or key in document.sections:
                raise self.error(f"{key} is listed twice", start)
            if key in _SECTIONS:
                document.sections[key] = self._section(_SECTIONS[key])
            elif key in _SCALARS | _LISTS:
                document.fields[key] = self._value(key, wants_list=key in _LISTS)
            else:
                raise self.error(f"unknown key {key}", start)

    def _key(self) -> str:
        found = self.match(_KEY)
        if found is None:
            raise self.error("a key is expected here")
        return found[1]

    def _value(self, key: str, *, wants_list: bool) -> _Value:
        if self.text.startswith("[", self.at) != wants_list:
            raise self.error(f"{key} is {'not a' if wants_list else 'a'} list")
        if wants_list:
            return self._list()
        found = self.match(_SCALAR)
        if found is None:
            raise self.error(f"the value of {key} is not one plain or quoted text")
        return _text(found)

    def _list(self) -> list[str]:
        self.at += 1
        items: list[str] = []
        if self.match(_CLOSE):
            return items
        match, text, at = _ITEM.match, self.text, self.at
        while True:
            found = match(text, at)
            if found is None:
                self.at = at
                raise self.error("a list is malformed or does not end")
            items.append(found[3] or _text(found))
            at = found.end()
            if found[4] == "]":
                break
        self.at = at
        if self.match(_LINE_END) is None:
            raise self.error("something follows a list on its line")
        return items

    def _section(self, allowed: frozenset[str]) -> list[dict[str, _Value]]:
        if self.match(_LINE_END) is None:
            raise self.error("a section has its entries on the following lines")
        entries: list[dict[str, _Value]] = []
        while True:
            self.match(_BLANK)
            dash = self.match(_DASH)
            if dash is None:
                return entries
            entries.append(self._entry(len(dash[0]), allowed))

    def _entry(self, indent: int, allowed: frozenset[str]) -> dict[str, _Value]:
        """Read the keys of an entry, which are all in the same column, the first of them after the dash."""
        entry: dict[str, _Value] = {}
        while True:
            start = self.at
            key = self._key()
            if key not in allowed or key in entry:
                raise self.error(f"{key} {'is listed twice' if key in entry else 'does not belong here'}", start)
            entry[key] = self._value(key, wants_list=key not in {"umbrella", "target", "value"})
            self.match(_BLANK)
            found = _INDENT.match(self.text, self.at)
            if found is None or len(found[0]) != indent or self.text.startswith("-", found.end()):
                return entry
            self.at = found.end()


def _text(found: re.Match[str]) -> str:
    single, double, plain = found.group(1, 2, 3)
    return str(single.replace("''", "'") if single is not None else double if double is not None else plain)


def _interpret(document: _Document, reader: _Reader) -> Iterator[Stub]:
    """Yield the stubs of a document, one for each architecture that it has for macOS."""
    fields, at = document.fields, document.at
    if fields.get("tbd-version") != "4":
        raise reader.error(f"tbd-version is {fields.get('tbd-version')}, not 4", at)
    name, targets = fields.get("install-name"), fields.get("targets")
    if not isinstance(name, str) or not name or not isinstance(targets, list):
        raise reader.error("a document without install-name or without targets", at)
    if not 0 < len(targets) <= _MAX_TARGETS or "" in targets:
        raise reader.error("a document with no targets, or with too many", at)
    versions = [str(fields.get(f"{kind}-version", "1")) for kind in ("current", "compatibility")]
    for version in versions:
        if not _is_version(version):
            raise reader.error(f"{version!r} is not a version", at)
    known = frozenset(targets)
    for entry in (entry for section in document.sections.values() for entry in section):
        found = entry.get("targets", [entry.get("target", "")])
        if not 0 < len(found) <= _MAX_TARGETS or not known.issuperset(found):
            raise reader.error("an entry of this document has no targets, or one that the document does not have", at)
    for arch in _ARCHS:
        if f"{arch}-macos" in targets:
            yield _stub(document, name, arch, versions)


def _stub(document: _Document, name: str, arch: str, versions: Sequence[str]) -> Stub:
    target = f"{arch}-macos"
    names: dict[str, set[str]] = {key: set() for key in _PREFIXES}
    entries = [*document.sections.get("exports", ()), *document.sections.get("reexports", ())]
    for entry in entries:
        for key in names.keys() & entry.keys() if target in entry["targets"] else ():
            for prefix in _PREFIXES[key]:
                names[key].update([prefix + text for text in entry[key]] if prefix else entry[key])
    libraries = [
        library
        for entry in document.sections.get("reexported-libraries", [])
        if target in entry["targets"]
        for library in entry.get("libraries", ())
    ]
    return Stub(
        install_name=name,
        arch=arch,
        symbols=frozenset().union(*names.values()),
        weak=frozenset(names["weak-symbols"]),
        thread_local=frozenset(names["thread-local-symbols"]),
        reexports=tuple(dict.fromkeys(libraries)),
        current=versions[0],
        compatibility=versions[1],
    )
