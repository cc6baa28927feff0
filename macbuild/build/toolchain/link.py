"""Run a call of the compiler that needs the flag table, or explain a link that failed.

Started by the scripts of `macbuild.build.toolchain.driver`, so what it imports costs each such call.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from macbuild.build.toolchain.flags import DYLIB, System, Translation, expand, rules_from, translate
from macbuild.errors import MacbuildError, ToolError
from macbuild.files import os_errors

__all__ = ["KNOWN", "explain", "main"]

KNOWN = "-Wl,-macbuild_known_symbols"
"""Makes a link fail if it uses a symbol of macOS without evidence; CMake's checks pass it (cmake/rules.cmake)."""

_SOURCES = frozenset({".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".m", ".mm", ".s", ".S"})
# Flags with a word of their own, for a call that compiles and links at once.
_COMPILER_WORDS = frozenset({"-x", "-I", "-D", "-U", "-include", "-isystem", "-iquote", "-MF", "-MT", "-MQ", "-Xclang"})
_LINKER_WORDS = frozenset(
    {"-o", "-Xlinker", "-L", "-framework", "-weak_framework", "-install_name", "-current_version", "-rpath", "-u", "-e"}
    | {"-compatibility_version", "-force_load", "-filelist", "-undefined", "-exported_symbols_list", "-bundle_loader"}
)
_UNDEFINED = re.compile(r'undefined symbol: (\S+)|^  "([^"]+)", referenced from:', re.MULTILINE)
_SHOWN = 20
# What may be looked up in whichever image has it: Python's, which is a library or part of a program. zig binds its own
# stubs for objc_msgSend in the same way.
_FLAT = ("_Py*", "__Py*", "_objc_msgSend")
_STRIP = "-Wl,-dead_strip"


def main(config: Mapping[str, Any], arguments: Sequence[str]) -> int:
    """Run one call of the compiler and return its exit status.

    Parameters
    ----------
    config
        The driver's, from its `driver.json`.
    arguments
        The language (`c`, `cxx`), the kind of call (`compile`, `link`, or `explain` for a link that failed and has
        shown its own errors), and the project's arguments.
    """
    language, kind, *words = arguments
    call = _Call(config, language)
    try:
        return call.compile(words) if kind == "compile" else call.link(words, quiet=kind == "explain")
    except MacbuildError as error:
        print(f"macbuild: error: {error}", file=sys.stderr)
        if error.hint:
            print(f"macbuild: hint: {error.hint}", file=sys.stderr)
        return 1


class _Call:
    """One call of the compiler."""

    def __init__(self, config: Mapping[str, Any], language: str) -> None:
        self.config = config
        self.cxx = language == "cxx"
        self.compiler: list[str] = config["cxx" if self.cxx else "c"]
        self.linker: list[str] = config["link_cxx" if self.cxx else "link"]
        self.rules = rules_from(config["rules"])
        self.system = System(**config["system"])
        self.quiet = False

    def compile(self, words: Sequence[str]) -> int:
        translation = translate(words, self.rules, self.system, kind="compile")
        _tell(translation)
        debug = [] if any(word.startswith("-g") for word in translation.arguments) else ["-g0"]
        return subprocess.run([*self.compiler, *debug, *translation.arguments], check=False).returncode

    def link(self, words: Sequence[str], *, quiet: bool) -> int:
        self.quiet = quiet
        words = list(expand(words))
        known = KNOWN in words
        words = [word for word in words if word != KNOWN]
        with tempfile.TemporaryDirectory(prefix="macbuild-link-") as folder:
            if any(_is_source(word) for word in words):
                status, words = self._compile_sources(words, Path(folder))
                if status:
                    return status
            translation = translate(words, self.rules, self.system, kind="link")
            if not quiet:
                _tell(translation)
            status = self._link(translation)
            if status == 0 and known:
                self._check(_output(translation.arguments))
            return status

    def _check(self, output: Path) -> None:
        """Refuse what was linked if the deployment target may not have one of its symbols, strong or weak."""
        unknown = [name for name, library in _system_imports(output) if self._lacks(library, name)]
        if unknown:
            output.unlink()
            hint = "to see the evidence, run: macbuild stubs show SYMBOL"
            raise ToolError(f"no evidence that macOS {self.config['deployment']} has {', '.join(unknown)}", hint=hint)

    def _lacks(self, library: str, name: str) -> bool:
        from macbuild.build.toolchain.evidence import load_evidence

        evidence = load_evidence().get(library)
        lowest = evidence.lowest(name, self.system.arch) if evidence else "0"
        return lowest is None or _newer(lowest, self.config["deployment"])

    def _link(self, translation: Translation) -> int:
        arguments = translation.arguments
        if self.cxx and translation.libcxx and self.system.libcxx:
            arguments = [*arguments, self.system.libcxx]
        keep = translation.keep if DYLIB & set(arguments) else None
        if keep is None and not translation.flat:
            return self._run(arguments)
        output = _output(arguments)
        index = arguments.index("-o") + 1 if "-o" in arguments[:-1] else None
        arguments = [*arguments[: index - 1], *arguments[index + 1 :]] if index is not None else arguments
        # What is done after the link is done beside the output, which so appears whole and right, or not at all. The
        # name is the same, because the linker writes it into the signature.
        with os_errors(output), tempfile.TemporaryDirectory(prefix=".macbuild-", dir=output.parent) as folder:
            partial = Path(folder, output.name)
            status = self._run([*arguments, "-o", str(partial)])
            if status == 0:
                if keep is not None:
                    _enforce(partial, keep)
                if translation.flat:
                    self._refuse_strays(partial)
                partial.replace(output)
            return status

    def _refuse_strays(self, output: Path) -> None:
        """Refuse a file that leaves more than Python's symbols to be found at run time."""
        strays = [name for name in _flat_imports(output) if not any(fnmatchcase(name, glob) for glob in _FLAT)]
        if strays:
            text = "\n".join(f"undefined symbol: {name}" for name in strays)
            for line in explain(text, self.system.arch, self.config["deployment"]):
                sys.stderr.write(f"macbuild: {line}\n")
            hint = "-undefined dynamic_lookup leaves Python's symbols open, and no others"
            raise ToolError(f"undefined symbols: {', '.join(strays[:_SHOWN])}", where=output.name, hint=hint)

    def _run(self, arguments: Sequence[str]) -> int:
        done = _started([*self.linker, *arguments])
        if done.returncode < 0 and _STRIP in self.linker:
            # zig 0.17 crashes when -dead_strip leaves nothing of a dylib, as when all its symbols are hidden.
            sys.stderr.write(f"macbuild: note: {_STRIP} left out: the linker crashed; is anything exported?\n")
            done = _started([*(word for word in self.linker if word != _STRIP), *arguments])
        if not self.quiet:
            sys.stderr.write(done.stderr)
        if done.returncode:
            for line in explain(done.stderr, self.system.arch, self.config["deployment"]):
                sys.stderr.write(f"macbuild: {line}\n")
        return done.returncode

    def _compile_sources(self, words: Sequence[str], folder: Path) -> tuple[int, list[str]]:
        """Compile what is source among the arguments of a link; return the status and the arguments with objects."""
        flags: list[str] = ["-Wno-unused-command-line-argument"]
        rest: list[str] = []
        objects: list[str] = []
        waiting = iter(words)
        for word in waiting:
            if _is_source(word):
                objects.append(word)
                rest.append(str(folder / f"{len(objects)}.o"))
                continue
            found = [word, next(waiting, "")] if word in _COMPILER_WORDS | _LINKER_WORDS else [word]
            if word in _LINKER_WORDS or not word.startswith("-") or word.startswith(("-Wl,", "-l", "-L")):
                rest += found
            elif word in _COMPILER_WORDS:
                flags += found
            else:
                rest += found
                flags += found
        for number, source in enumerate(objects, 1):
            status = self.compile([*flags, "-c", source, "-o", str(folder / f"{number}.o")])
            if status:
                return status, []
        return 0, rest


def _output(arguments: Sequence[str]) -> Path:
    return Path(arguments[arguments.index("-o") + 1] if "-o" in arguments[:-1] else "a.out")


def _system_imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the symbols that a file takes from other libraries, each with the library's install name."""
    from macbuild.macho.file import open_macho
    from macbuild.macho.symbols import read_imports

    with open_macho(path) as file:
        for image in file.images:
            for name, ordinal, _ in sorted(read_imports(image)):
                if 0 < ordinal <= len(image.dylibs):
                    yield name.decode("utf-8", "replace"), image.dylibs[ordinal - 1].name


def _flat_imports(path: Path) -> list[str]:
    """Return the symbols that a file takes from whichever image has them."""
    from macbuild.macho.file import open_macho
    from macbuild.macho.symbols import FLAT_LOOKUP, read_imports

    with open_macho(path) as file:
        found = {each.name for image in file.images for each in read_imports(image) if each.ordinal == FLAT_LOOKUP}
    return sorted(name.decode("utf-8", "replace") for name in found)


def _started(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)


def explain(text: str, arch: str, deployment: str) -> list[str]:
    """Explain the symbols that a linker did not find.

    Parameters
    ----------
    text
        The error text of zig's or Apple's linker.
    arch, deployment
        The target.
    """
    names = list(dict.fromkeys(first or second for first, second in _UNDEFINED.findall(text)))
    if not names:
        return []
    from macbuild.build.toolchain.evidence import load_evidence

    libraries = list(load_evidence().values())
    lines = []
    for name in names[:_SHOWN]:
        seen = [(library, lowest) for library in libraries if (lowest := library.lowest(name, arch))]
        if not seen:
            lines.append(f"{name}: no library of macOS is known to have it; link the library that defines it")
        for library, lowest in seen:
            where = library.install_name
            if _newer(lowest, deployment):
                lines.append(f"{name}: {where} has it since macOS {lowest} by evidence; the target is {deployment}")
            else:
                lines.append(f"{name}: {where} has it, and is not linked")
    if len(names) > _SHOWN:
        lines.append(f"and {len(names) - _SHOWN} more")
    return lines


def _newer(version: str, other: str) -> bool:
    return [int(part) for part in version.split(".")] > [int(part) for part in other.split(".")]


def _is_source(word: str) -> bool:
    return not word.startswith("-") and os.path.splitext(word)[1] in _SOURCES


def _tell(translation: Translation) -> None:
    for note in translation.notes:
        sys.stderr.write(f"macbuild: note: {note}\n")


def _enforce(path: Path, keep: Sequence[str]) -> None:
    """Leave only the names in `keep` exported, and read the file back to check."""
    from macbuild.macho.exports import restrict_exports
    from macbuild.macho.file import open_macho
    from macbuild.macho.symbols import read_exports

    restrict_exports(path, keep)
    with open_macho(path) as file:
        names = {name.decode("utf-8", "replace") for image in file.images for name in read_exports(image).names}
    left = sorted(name for name in names if not any(fnmatchcase(name, glob) for glob in keep))
    if left:
        raise ToolError(f"still exports {', '.join(left[:5])}", where=path)
