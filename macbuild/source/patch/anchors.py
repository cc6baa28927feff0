"""Check and compile anchors and patterns, which identify the place of an edit."""

from __future__ import annotations

import re
from itertools import pairwise

__all__ = ["check_anchor", "check_pattern", "compile_anchor", "is_word"]


MAX_REPEATS = 3
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def check_anchor(anchor: str) -> str | None:
    """Return what is wrong with an anchor, if anything."""
    if anchor != anchor.strip() or not anchor.isprintable() or not anchor:
        return f"the anchor {anchor!r} is not part of a single line"
    return None


def check_pattern(pattern: str) -> str | None:
    """Return what is wrong with a pattern, if anything: it must be quick on any text and match something."""
    plain = _ESCAPE_OR_CLASS.sub("x", pattern)
    if re.search(r"\)\s*[*+?{]", plain) or len(re.findall(r"[*+{]", plain)) > MAX_REPEATS:
        return f"the pattern {pattern!r} repeats a group, or repeats more than {MAX_REPEATS} times: it may take forever"
    if re.search(r"\\[1-9]|\(\?(?![:=!<])|\(\?<[^=!]", pattern):
        return f"the pattern {pattern!r} has flags, names or back references"
    if any(re.search(r"(?<!\\)\[|--|&&|~~|\|\|", inner[1:-1]) for inner in _CLASS.findall(pattern)):
        return f"the pattern {pattern!r} has a set that later versions of Python may read differently"
    try:
        compiled = re.compile(pattern, re.MULTILINE | re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        return f"the pattern {pattern!r} is not valid: {error}"
    return f"the pattern {pattern!r} matches nothing at all" if compiled.search("") else None


def compile_anchor(anchor: str) -> re.Pattern[str]:
    """Return the expression for an anchor: any white space for white space, whole words at both ends."""
    words = anchor.split()
    expression = re.escape(words[0])
    for before, after in pairwise(words):
        must = is_word(before[-1]) and is_word(after[0])
        expression += (r"\s+" if must else r"\s*") + re.escape(after)
    start = r"(?<!\w)" if is_word(anchor[0]) else ""
    end = r"(?!\w)" if is_word(anchor[-1]) else ""
    return re.compile(start + expression + end, re.ASCII)


def is_word(character: str) -> bool:
    """Return True for a letter, a digit or an underscore of ASCII."""
    return re.match(r"\w", character, re.ASCII) is not None
