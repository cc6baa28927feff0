"""Find an edit's anchor in a text, what the edit would change there, and whether it was applied before."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from macbuild.source.patch.anchors import compile_anchor, is_word
from macbuild.source.patch.model import Edit

__all__ = ["EditReport", "EditState", "TextChange", "examine", "line_number"]

EditState = Literal["applied", "already-applied", "not-needed", "ambiguous", "missing"]
MAX_SHOWN = 8
_CMAKE_FILE = re.compile(r"(?:.*/)?(?:CMakeLists\.txt|[^/]*\.cmake(?:\.in)?)")


@dataclass(frozen=True, slots=True)
class TextChange:
    """A part of a text, by offsets in characters, and what takes its place.

    `opens` marks an insertion that belongs to the text after it: at the same offset it comes after insertions that
    belong to the text before them.
    """

    start: int
    end: int
    new: str
    opens: bool = False


@dataclass(frozen=True, slots=True)
class EditReport:
    """The outcome of one edit in one tree.

    Parameters
    ----------
    edit
        The edit.
    state
        `applied` also for what would be applied.
    message
        What was found.
    lines
        Numbers of the lines that it is about, from 1.
    near
        For a missing anchor: the lines that are most like it, as `12: text`, or files of the same name.
    changes
        Changes to make, by offsets in the current text.
    """

    edit: Edit
    state: EditState
    message: str
    lines: tuple[int, ...] = ()
    near: tuple[str, ...] = ()
    changes: tuple[TextChange, ...] = field(default=(), repr=False)

    @property
    def is_bad(self) -> bool:
        """Return whether this outcome forbids writing."""
        return self.state in {"ambiguous", "missing"}


@dataclass(frozen=True, slots=True)
class _Site:
    """A match: the part of the text that the edit covers, and whether it is applied there."""

    start: int
    end: int
    is_done: bool


def line_number(text: str, offset: int) -> int:
    """Return the number, from 1, of the line that an offset is in."""
    return text.count("\n", 0, offset) + 1


def examine(text: str, edit: Edit) -> EditReport:
    """Return what the edit finds in a text, and what it would change."""
    expression = compile_anchor(edit.anchor) if edit.anchor else re.compile(edit.pattern or "", re.MULTILINE | re.ASCII)
    start, end = 0, len(text)
    if edit.after is not None:
        places = [match.end() for match in compile_anchor(edit.after).finditer(text)]
        if len(places) != 1:
            return _not_found(
                text, edit, f"what comes before it, {edit.after!r}, matches {len(places)} times, not once"
            )
        start = places[0]
    form = _Form(text, edit)
    every = list(form.sites(expression, start, end))
    sites = every if edit.after is None else every[: edit.matches]
    fresh = [site for site in sites if not site.is_done]
    done = sum(site.is_done for site in every)
    lines = tuple(sorted({line_number(text, site.start) for site in sites}))
    if done == edit.matches and not fresh:
        return EditReport(edit, "already-applied", "it is already there", lines)
    gone = re.search(edit.gone, text, re.MULTILINE | re.ASCII) if edit.gone else None
    if gone:
        number = line_number(text, gone.start())
        found = f"upstream has changed: {_short(gone[0])!r} in line {number}"
        return EditReport(edit, "not-needed", found, (number,))
    if len(fresh) == edit.matches:
        changes = tuple(dict.fromkeys(change for site in fresh for change in form.changes(site)))
        return EditReport(edit, "applied", f"matches in {_lines(lines)}", lines, (), changes)
    if not fresh:
        found = f", but its new text is there {done} times instead of {edit.matches}" if done else ""
        return _not_found(text, edit, f"its anchor is not found{found}")
    partly = f", and is already applied {done} times" if done else ""
    problem = f"it must match {edit.matches} times and matches {len(fresh)} times{partly}, in {_lines(lines)}"
    return EditReport(edit, "ambiguous", problem, lines)


def _not_found(text: str, edit: Edit, message: str) -> EditReport:
    gone = re.search(edit.gone, text, re.MULTILINE | re.ASCII) if edit.gone else None
    if gone:
        number = line_number(text, gone.start())
        return EditReport(edit, "not-needed", f"upstream has changed: {_short(gone[0])!r} in line {number}", (number,))
    return EditReport(edit, "missing", message, (), tuple(_near(text, edit.anchor or edit.pattern or "")))


def _near(text: str, anchor: str) -> list[str]:
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()[:20000], 1):
        lines.setdefault(_short(line), number)
    found = difflib.get_close_matches(anchor, list(lines), n=3, cutoff=0.4)
    return [f"{lines[line]}: {line}" for line in found]


def _short(line: str) -> str:
    return " ".join(line.split())[:120]


def _lines(numbers: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, numbers[:MAX_SHOWN])) + (", ..." if len(numbers) > MAX_SHOWN else "")
    return f"{'line' if len(numbers) == 1 else 'lines'} {shown}"


class _Form:
    """How one edit is written into one text: with the line ends that the text has."""

    def __init__(self, text: str, edit: Edit) -> None:
        self.text = text
        self.edit = edit
        first = text.find("\n")
        self.eol = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
        self.new = edit.text.replace("\n", self.eol)
        self.block = self.new if self.new.endswith(self.eol) else self.new + self.eol
        if edit.action == "guard":
            opening, closing = (
                (f"if({self.new})", "endif()") if _CMAKE_FILE.fullmatch(edit.file) else (f"#if {self.new}", "#endif")
            )
            self.opening, self.closing = opening + self.eol, closing + self.eol

    def sites(self, expression: re.Pattern[str], start: int, end: int) -> Iterator[_Site]:
        """Yield the places of the edit in order: where its anchor is, and where it was applied."""
        done = list(self._replaced(start)) if self.edit.action == "replace" else []
        for first, last in self._matches(expression, start, end):
            inside = [site for site in done if site.start < last and first < site.end]
            if not inside:
                yield from (site for site in done if site.end <= first)
                done = [site for site in done if site.end > first]
                yield _Site(first, last, self._is_done(first, last))
        yield from done

    def _matches(self, expression: re.Pattern[str], start: int, end: int) -> Iterator[tuple[int, int]]:
        until = compile_anchor(self.edit.until) if self.edit.until is not None else None
        position = start
        while match := expression.search(self.text, position, end):
            last = match.end()
            if until is not None:
                closing = until.search(self.text, last)
                if closing is None:
                    return
                last = closing.end()
            position = max(last, match.start() + 1)
            if last > match.start():
                yield match.start(), last

    def _replaced(self, start: int) -> Iterator[_Site]:
        position = self.text.find(self.new, start)
        while position >= 0:
            last = position + len(self.new)
            is_whole = (
                self._margin(position) and self._is_line_end(last)
                if self.edit.whole_lines
                else self._is_free(position, last)
            )
            if is_whole:
                yield _Site(position, last, is_done=True)
            position = self.text.find(self.new, last if is_whole else position + 1)

    def _is_free(self, first: int, last: int) -> bool:
        """Return whether no word of the text continues beyond a part of it."""
        text = self.text
        before = first == 0 or not (is_word(text[first]) and is_word(text[first - 1]))
        return before and (last == len(text) or not (is_word(text[last - 1]) and is_word(text[last])))

    def _margin(self, offset: int) -> bool:
        return not self.text[self._line_start(offset) : offset].strip()

    def _is_line_end(self, offset: int) -> bool:
        return offset == len(self.text) or self.text.startswith(("\n", "\r\n"), offset)

    def _line_start(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1

    def _line_end(self, offset: int) -> int:
        """Return the offset behind the line end of the line that the character before `offset` is in."""
        found = self.text.find("\n", max(offset - 1, 0))
        return len(self.text) if found < 0 else found + 1

    def _is_done(self, first: int, last: int) -> bool:
        action, text = self.edit.action, self.text
        if not self.edit.whole_lines:
            if action == "insert-before":
                return text.endswith(self.new, 0, first)
            return action == "insert-after" and text.startswith(self.new, last)
        start, end = self._line_start(first), self._line_end(last)
        if action == "insert-before":
            return text.endswith(self.block, 0, start)
        if action == "insert-after":
            return self._follows(self.block, end)
        return action == "guard" and text.endswith(self.opening, 0, start) and self._follows(self.closing, end)

    def _follows(self, block: str, offset: int) -> bool:
        """Return whether the block is at an offset; at the end of the text it may lack its line end."""
        if self.text.startswith(block, offset):
            return True
        bare = block.removesuffix(self.eol)
        return offset + len(bare) == len(self.text) and self.text.startswith(bare, offset)

    def changes(self, site: _Site) -> list[TextChange]:
        """Return what the edit changes at a place where it was not applied."""
        action, new = self.edit.action, self.new
        start, end = site.start, site.end
        if self.edit.whole_lines:
            return self._line_changes(self._line_start(start), self._line_end(end))
        if action == "insert-before":
            return [TextChange(start, start, new, opens=True)]
        if action == "insert-after":
            return [TextChange(end, end, new)]
        return [TextChange(start, end, new)]

    def _line_changes(self, start: int, end: int) -> list[TextChange]:
        action = self.edit.action
        if action == "delete":
            return [TextChange(start, end, "")]
        if action == "insert-before":
            return [TextChange(start, start, self.block, opens=True)]
        if action == "insert-after":
            return [TextChange(end, end, self._behind(self.block, end))]
        if action == "guard":
            behind = TextChange(end, end, self._behind(self.closing, end))
            return [TextChange(start, start, self.opening, opens=True), behind]
        line = self.text[start:end]
        margin = len(line) - len(line.lstrip())
        return [TextChange(start + margin, start + len(line.rstrip("\r\n")), self.new)]

    def _behind(self, block: str, offset: int) -> str:
        """Return a block to insert at the end of a line; the last line of a text may lack its line end."""
        if offset < len(self.text) or self.text.endswith("\n") or not self.text:
            return block
        return self.eol + block.removesuffix(self.eol)
