"""Lay out rows for a terminal: one line per row where that fits, else a heading with the details below it."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO

__all__ = ["aligned", "fold_for", "folded", "grouped", "terminal_width"]

_GAP = "  "
_NARROWEST = 20  # columns; a narrower terminal folds by itself
# What stays in one line: a command in a message, up to a punctuation mark, and a number with its unit.
_WHOLE = re.compile(r"(?<![\w./-])macbuild(?: [^\s;,()]+)+|\b[\d.]+ (?:[kMGT]?B|m?s|min|h)\b")
_GLUE = "\0"  # stands for a space where a line must not end


def terminal_width() -> int:
    """Return the width of standard output in characters: `COLUMNS`, the terminal's, or 160 for a file or a pipe."""
    return shutil.get_terminal_size((160, 24)).columns


def aligned(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Return one line per row, its cells padded to the width of their columns.

    Parameters
    ----------
    rows
        Cells, the same number in each row.
    right
        Indexes of the columns that are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rights = set(right)
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in rights else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def grouped(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Return the rows aligned and indented, each below its heading; equal headings in a row are written once."""
    lines: list[str] = []
    last = None
    for heading, line in zip(headings, aligned(rows, right), strict=True):
        if heading != last:
            lines.append(heading)
        last = heading
        lines.append(f"  {line}")
    return lines


def folded(text: str, width: int, indent: int = 0) -> str:
    """Return a message in lines of a width that end between words.

    A command is never broken, so that it can be copied: it goes to a line of its own, as a long path does. Only the
    first line of the message is folded: others may be code.

    Parameters
    ----------
    text
        The message. Spaces in it are kept.
    width
        Characters in a line.
    indent
        Spaces before each line but the first.
    """
    first, newline, rest = text.partition("\n")
    if len(first) <= width:
        return text
    glued = _WHOLE.sub(lambda found: found[0].replace(" ", _GLUE), first)
    margin = " " * indent
    lines = textwrap.wrap(
        glued, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False, expand_tabs=False
    )
    return "\n".join(lines).replace(_GLUE, " ") + newline + rest


def fold_for(stream: IO[str], text: str, indent: int = 0) -> str:
    """Return a message for a stream: folded for a terminal, and as it is for a file or a pipe."""
    if not stream.isatty():
        return text
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    return folded(text, width, indent) if width >= _NARROWEST else text
