"""Write the compilers that CMake calls: small shell scripts that add the target's flags and become zig or clang.

A compile call and a plain link cost one start of `sh`. `macbuild.build.toolchain.link` handles calls that the flag
table changes, and links that failed.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from macbuild.build.toolchain.flags import Rule, System
from macbuild.build.toolchain.model import write_if_new
from macbuild.files import os_errors

__all__ = ["Driver", "install_driver"]

SOURCES = ("*.c", "*.cc", "*.cp", "*.cpp", "*.cxx", "*.c++", "*.C", "*.m", "*.mm", "*.s", "*.S")
# With one of these the compiler does not link.
_COMPILES = ("-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "-dumpversion", "-dumpmachine", "-print-*")
_PLACES = ("@rpath/*", "@loader_path*", "@executable_path*")


@dataclass(frozen=True)
class Driver:
    """Describe what the scripts do.

    Parameters
    ----------
    title
        What the compiler is, for people who read the script.
    c, cxx
        The commands that compile C and C++, with the flags of every call.
    link, link_cxx
        The commands that link, with the flags of every link.
    environ
        Variables for all of them.
    rules, system
        The flag table, and the libraries of the system.
    deployment
        The deployment target, as `14.0`.
    """

    title: str
    c: Sequence[str]
    cxx: Sequence[str]
    link: Sequence[str]
    link_cxx: Sequence[str]
    environ: Mapping[str, str]
    rules: Sequence[Rule]
    system: System
    deployment: str


def install_driver(folder: Path, driver: Driver) -> tuple[Path, Path]:
    """Write the two compilers into a folder, and return their paths: C, C++.

    A script that already has the same content is left alone.

    Raises
    ------
    FileError
        The folder cannot be written.
    """
    config = folder / "driver.json"
    data = asdict(driver) | {"path": _search_path()}
    with os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_if_new(config, json.dumps(data, indent=1))
        paths = folder / "cc", folder / "c++"
        for path, language in zip(paths, ("c", "cxx"), strict=True):
            write_if_new(path, _script(driver, language, config), 0o755)
    return paths


def _search_path() -> list[str]:
    """Return the folders that a Python without its site packages needs, to import macbuild and what it imports."""
    found = [find_spec(name) for name in ("macbuild", "msgspec", "tomli")]
    return sorted({str(Path(spec.origin).parent.parent) for spec in found if spec is not None and spec.origin})


def _script(driver: Driver, language: str, config: Path) -> str:
    compiler, linker = (driver.c, driver.link) if language == "c" else (driver.cxx, driver.link_cxx)
    after = [driver.system.libcxx] if language == "cxx" and driver.system.libcxx else []
    table = shlex.join([sys.executable, "-I", "-S", "-c", _START, str(config), language])
    both, compile_only, link_only, accepted = _patterns(driver.rules)
    lines = [
        "#!/bin/sh",
        f"# {driver.title}. Written by macbuild.",
        *(f"export {name}={shlex.quote(value)}" for name, value in driver.environ.items()),
        "kind=link compile=plain link=plain dylib=no named=no debug=-g0",
        "for word do",
        "  case $word in",
        f"  {'|'.join(_COMPILES)}) kind=compile ;;",
        "  -shared|-dynamiclib) dylib=yes ;;",
        "  -install_name) named=yes ;;",
        # zig adds debug information unless told otherwise, and a -g after -g0 would not count.
        "  -g*) debug= ;;",
        # More than one flag in a word, or more than one rpath.
        "  -Wl,-rpath,*,*|-Wl,-rpath,*:*) link=table ;;",
        f"  {'|'.join((*_PLACES, *accepted))}) ;;",
        f"  {'|'.join(('@*', *both))}) compile=table link=table ;;",
        *([f"  {'|'.join(compile_only)}) compile=table ;;"] if compile_only else []),
        f"  {'|'.join(('-Wl,*', '-Xlinker', *link_only, *SOURCES))}) link=table ;;",
        "  esac",
        "done",
        "case $kind$compile$link$dylib$named in",
        f'compileplain*) exec {shlex.join(compiler)} $debug "$@" ;;',
        "linkplainplainyesno) ;;",
        f'linkplainplain*) {shlex.join(linker)} "$@" {shlex.join(after)} && exit',
        "  kind=explain ;;",
        "esac",
        f'exec {table} "$kind" "$@"',
        "",
    ]
    return "\n".join(lines)


_START = (
    "import json,sys;f=open(sys.argv[1]);c=json.load(f);f.close();sys.path+=c['path'];"
    "from macbuild.build.toolchain.link import main;sys.exit(main(c,sys.argv[2:]))"
)


def _patterns(rules: Sequence[Rule]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the words, as patterns of `case`, that need the table in both kinds of call, in one, and in none."""
    compiles = {_word(rule.flag) for rule in rules if rule.on == "compile" and rule.action != "accept"}
    links = {_word(rule.flag) for rule in rules if rule.on == "link" and rule.action != "accept"}
    accepted = {
        "-Wl," + _word(rule.flag)
        for rule in rules
        if rule.on == "linker" and rule.action == "accept" and not rule.value and "*" not in rule.flag
    }
    places = {f"-Wl,-rpath,{place}" for place in ("@loader_path*", "@executable_path*")}
    return sorted(compiles & links), sorted(compiles - links), sorted(links - compiles), sorted(accepted | places)


def _word(flag: str) -> str:
    return "*".join(shlex.quote(part) if part else "" for part in flag.split("*"))
