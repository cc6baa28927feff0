"""Derive edits from a changed tree: for each change the shortest anchor that finds its place, and the new text."""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from macbuild.data import convert
from macbuild.errors import PatchError, ToolError
from macbuild.files import walk
from macbuild.source.patch.anchors import compile_anchor
from macbuild.source.patch.apply import edit_text
from macbuild.source.patch.model import EditCheck, EditFile, check_edit
from macbuild.source.patch.record import RECORD, read_member

__all__ = ["changed_files", "derive", "make_edits", "to_toml"]

MIN_ANCHOR = 8  # shorter ones tell a reader little, and are taken only from shorter lines
MAX_ANCHOR = 160
_OWN_LINE = 12  # a shorter line, such as `}` or `#endif`, identifies nothing
_TOKEN = re.compile(r"\w+|[^\w\s]|\s+", re.ASCII)


def changed_files(tree: Path, pristine: Path | None = None) -> dict[str, tuple[bytes, bytes]]:
    """Return the old and the new bytes of each file that was changed in a tree.

    Parameters
    ----------
    tree
        The changed tree.
    pristine
        The tree before the changes; by default git's HEAD.

    Raises
    ------
    PatchError
        A file was added or removed, which edits cannot do, or nothing was changed.
    ToolError
        git is missing or refuses.
    """
    pairs = dict(_from_git(tree) if pristine is None else _from_folder(tree, pristine))
    if not pairs:
        raise PatchError("nothing was changed", where=tree)
    return pairs


def _from_folder(tree: Path, pristine: Path) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    names = {
        entry.path
        for root in (tree, pristine)
        for entry in walk(root, skip={".git"})
        if entry.kind == "file" or (entry.kind == "link" and (root / entry.path).is_file())
    }
    for name in sorted(names - {RECORD}):
        old, new = read_member(pristine, name), read_member(tree, name)
        if old is None or new is None:
            raise PatchError(f"was {'added' if old is None else 'removed'}; edits only change files", where=name)
        if old != new:
            yield name, (old, new)


def _from_git(tree: Path) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    listed = _git(tree, "diff", "--name-status", "--no-renames", "--relative", "-z", "HEAD", "--", ".")
    words = listed.decode("utf-8", "surrogateescape").split("\0")[:-1]
    for status, name in zip(words[::2], words[1::2], strict=True):
        if name == RECORD:
            continue
        new = read_member(tree, name)
        if status != "M" or new is None:
            raise PatchError("was added, removed or is no longer a file; edits only change files", where=name)
        old = _git(tree, "show", f"HEAD:./{name}")
        if old != new:
            yield name, (old, new)


def _git(tree: Path, *words: str) -> bytes:
    program = shutil.which("git")
    if program is None:
        raise ToolError("git is not installed", where=tree, hint="name the unchanged tree with --against FOLDER")
    done = subprocess.run([program, "-C", str(tree), *words], capture_output=True, check=False)
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip().splitlines()
        hint = "name the unchanged tree with --against FOLDER"
        raise PatchError(f"git {words[0]}: {message[-1] if message else 'failed'}", where=tree, hint=hint)
    return done.stdout


def make_edits(
    files: dict[str, tuple[bytes, bytes]], component: str, name: str, reason: str, check: EditCheck
) -> EditFile:
    """Return the edits that turn the old files into the changed ones.

    Parameters
    ----------
    files
        What `changed_files` returned.
    component
        The folder in `patches/`.
    name
        The name of the edit; with several, a number follows it.
    reason
        Why.
    check
        What they were derived from; the path is added to its `file`.

    Raises
    ------
    PatchError
        A change has no line that finds its place, or holds lines of the original.
    """
    plain: list[dict[str, Any]] = []
    for path, (old, new) in files.items():
        plain += [{"file": path, **part} for part in derive(path, old, new)]
    edits = [
        {
            "name": name if len(plain) == 1 else f"{name}-{number}",
            **part,
            "reason": reason,
            "checked": [msgspec.to_builtins(msgspec.structs.replace(check, file=f"{check.file} {part['file']}"))],
        }
        for number, part in enumerate(plain, 1)
    ]
    made = convert({"schema": 1, "component": component, "edits": edits}, EditFile, "the new edits", PatchError)
    for edit in made.edits:
        check_edit(edit, "the new edits")
    for path, (old, new) in files.items():
        _, result = edit_text(old, [edit for edit in made.edits if edit.file == path])
        if result != new:
            raise PatchError(
                "this change cannot be expressed as edits; change whole lines, or write them by hand", where=path
            )
    return made


def derive(path: str, old: bytes, new: bytes) -> list[dict[str, Any]]:
    """Return the keys of an edit for each change of a file."""
    texts = [_text(data, path) for data in (old, new)]
    before, after = (text.split("\n") for text in texts)
    finder = _Finder(path, texts[0], before)
    edits: list[dict[str, Any]] = []
    for tag, start, end, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "insert":
            edits.append(finder.insertion(start, after[first:last]))
        elif tag == "delete":
            edits.append(finder.region(start, end, None))
        elif tag == "replace" and end - start == last - first:
            pairs = zip(range(start, end), after[first:last], strict=True)
            edits += [finder.line(number, line) for number, line in pairs]
        elif tag == "replace":
            edits.append(finder.region(start, end, after[first:last]))
    return edits


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise PatchError("is not UTF-8", where=path) from error


class _Finder:
    """Anchors in one text."""

    def __init__(self, path: str, text: str, lines: list[str]) -> None:
        self.path = path
        self.text = text
        self.lines = lines
        self.known = {" ".join(line.split()) for line in lines}

    def own(self, lines: Sequence[str]) -> str:
        """Return new lines as text; lines that the original has are refused."""
        for line in lines:
            plain = " ".join(line.split())
            if len(plain) >= _OWN_LINE and plain in self.known:
                hint = "make smaller changes, so that lines of the original are not part of them"
                raise PatchError(f"the new text holds a line of the original: {plain!r}", where=self.path, hint=hint)
        return "\n".join(lines)

    def insertion(self, position: int, lines: Sequence[str]) -> dict[str, Any]:
        """Return an edit that inserts lines before the line at a position, from 0."""
        text = self.own(lines) + "\n"
        for number, action in ((position, "insert-before"), (position - 1, "insert-after")):
            if 0 <= number < len(self.lines) and (found := self.find(number)):
                return {**found, "action": action, "text": text}
        raise self.nothing(position)

    def line(self, number: int, new: str) -> dict[str, Any]:
        """Return an edit that changes a line: its changed words, or all of it."""
        old = self.lines[number]
        start, end, stop = _difference(old, new)
        for low, high in _windows(old, start, end):
            text = new[low : stop + high - end]
            if text and self.is_anchor(old[low:high], number):
                return {"anchor": old[low:high], "action": "replace", "text": self.own([text])}
        found = self.find(number)
        margin = len(old) - len(old.lstrip())
        if found is None or new[:margin] != old[:margin] or not new.strip():
            return self.region(number, number + 1, [new])
        return {**found, "action": "replace", "scope": "line", "text": self.own([new[margin:]])}

    def region(self, start: int, end: int, lines: Sequence[str] | None) -> dict[str, Any]:
        """Return an edit that replaces or deletes lines."""
        found = self.find(start)
        if found is None:
            raise self.nothing(start)
        if end - start > 1:
            closing = self.lines[end - 1].strip()
            if not self.closes(closing, start, end):
                raise self.nothing(end - 1)
            found["until"] = closing
        if lines is None:
            return {**found, "action": "delete"}
        first = self.lines[start]
        margin = len(first) - len(first.lstrip())
        text = self.own(lines)
        if text[:margin] != first[:margin] or not text.strip():
            raise self.nothing(start)
        return {**found, "action": "replace", "scope": "line", "text": text[margin:]}

    def closes(self, closing: str, start: int, end: int) -> bool:
        """Return whether the first match of the last line's text after the first line is the last line."""
        if not 1 <= len(closing) <= MAX_ANCHOR:
            return False
        behind = "\n".join(self.lines[start:])
        first = len(self.lines[start])
        match = compile_anchor(closing).search(behind, first)
        return match is not None and behind.count("\n", 0, match.start()) == end - 1 - start

    def find(self, number: int) -> dict[str, Any] | None:
        """Return the shortest anchor of a line that matches once, or one after a line that does."""
        line = self.lines[number]
        for low, high in _windows(line, 0, 0):
            if self.is_anchor(line[low:high], number):
                return {"anchor": line[low:high]}
        plain = line.strip()
        if not 2 <= len(plain) <= MAX_ANCHOR or not plain.isprintable():
            return None
        for earlier in range(number - 1, max(number - 40, -1), -1):
            if any(self.matches(plain, other) for other in range(earlier + 1, number)):
                return None
            text = self.lines[earlier]
            for low, high in _windows(text, 0, 0):
                if self.is_anchor(text[low:high], earlier):
                    return (
                        {"after": text[low:high], "anchor": plain} if self.first_after(plain, earlier, number) else None
                    )
        return None

    def first_after(self, anchor: str, earlier: int, number: int) -> bool:
        """Return whether an anchor's first match after one line is in another line."""
        offset = sum(len(line) + 1 for line in self.lines[: earlier + 1]) - 1
        match = compile_anchor(anchor).search(self.text, offset)
        return match is not None and self.text.count("\n", 0, match.start()) == number

    def matches(self, anchor: str, number: int) -> bool:
        """Return whether an anchor matches in a line."""
        return compile_anchor(anchor).search(self.lines[number]) is not None

    def is_anchor(self, anchor: str, number: int) -> bool:
        """Return whether an anchor matches once, in the line of that number."""
        if len(anchor) < 2 or anchor != anchor.strip() or not anchor.isprintable() or self.text.count(anchor) != 1:
            return False
        found = list(compile_anchor(anchor).finditer(self.text))
        return len(found) == 1 and self.text.count("\n", 0, found[0].start()) == number

    def nothing(self, number: int) -> PatchError:
        """Return the error for a place that no anchor finds."""
        hint = "write this edit by hand, with a pattern or with `after`"
        return PatchError("no text on its line identifies this place", where=f"{self.path}:{number + 1}", hint=hint)


def _difference(old: str, new: str) -> tuple[int, int, int]:
    """Return where two lines begin to differ, and where that ends in the old and in the new one."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    same = 0
    while same < min(len(old), len(new)) - start and old[-1 - same] == new[-1 - same]:
        same += 1
    return start, len(old) - same, len(new) - same


def _windows(line: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of a line between its words that hold a given part, the shortest first."""
    least = min(MIN_ANCHOR, len(line.strip()))
    bounds = sorted({0, len(line), *(match.start() for match in _TOKEN.finditer(line))})
    whole = start == end == 0
    windows = [
        (low, high)
        for low in bounds
        for high in bounds
        if least <= high - low <= MAX_ANCHOR and (whole or (low <= start and end <= high))
    ]
    return sorted(windows, key=lambda window: (window[1] - window[0], window[0]))


def to_toml(file: EditFile) -> str:
    """Return an edit file as TOML, in the order of keys that people write."""
    import tomli_w

    order = ("name", "file", "after", "anchor", "pattern", "until", "matches", "action", "scope", "text", "reason")
    edits = []
    for edit in file.edits:
        plain = msgspec.to_builtins(edit)
        first = {key: plain[key] for key in order if key in plain}
        edits.append({**first, **{key: value for key, value in plain.items() if key not in first}})
    return tomli_w.dumps({"schema": 1, "component": file.component, "edits": edits}, multiline_strings=True)
