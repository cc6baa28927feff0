"""Read the files in which a project states exports: GNU ld's version scripts and Apple's export lists."""

from __future__ import annotations

import re

from macbuild.errors import ToolError

__all__ = ["read_export_list", "read_version_script"]

_COMMENT = re.compile(r"/\*.*?\*/|#[^\n]*", re.DOTALL)
_WORD = re.compile(r'"[^"]*"|[{};:]|[^\s{};:"]+(?:::?[^\s{};:"]+)*')


def read_version_script(text: str, where: object) -> list[str]:
    """Return the global names of a version script as globs with the leading underscore of Mach-O.

    Parameters
    ----------
    text
        The script: `VERSION { global: name; pattern*; local: *; };`, one or more such nodes, the version's name may be
        missing (ld(1), VERSION Command).
    where
        The file, for errors.

    Raises
    ------
    ToolError
        The script has demangled C++ names (`extern "C++"`) or cannot be read.
    """
    words = _WORD.findall(_COMMENT.sub(" ", text))
    names: list[str] = []
    depth = 0
    local = False
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word == "{":
            depth += 1
            local = local and depth > 1
        elif word == "}":
            depth -= 1
        elif depth > 0 and following == ":" and word in {"global", "local"}:
            local = word == "local"
        elif depth > 0 and word == "extern":
            if following != '"C"':
                hint = "write the mangled names, or give -exported_symbols_list"
                raise ToolError(f"extern {following} in a version script cannot be used", where=where, hint=hint)
        elif depth > 0 and word not in {";", ":", '"C"'} and not local:
            names.append("_" + word.strip('"'))
        if depth < 0:
            break
    if depth != 0 or "{" not in words:
        raise ToolError("is not a version script: its braces do not match", where=where)
    return names


def read_export_list(text: str) -> list[str]:
    """Return the names of an `-exported_symbols_list`: one a line, globs allowed, `#` begins a comment (ld(1))."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
