"""Lay out rows for a terminal: one line per row where that fits, else a heading with the details below it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

__all__ = ["aligned", "grouped", "terminal_width"]

_GAP = "  "


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
