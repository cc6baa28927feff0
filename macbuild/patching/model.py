"""Edits as data: what an edit file says, and what of it is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from macbuild.data import Data, load_toml
from macbuild.errors import PatchError
from macbuild.files import os_errors
from macbuild.patching.match import check_anchor, check_pattern
from macbuild.store import digest

__all__ = ["PLATFORMS", "Check", "Edit", "EditFile", "edits_digest", "load_edits", "wanted_on"]

ENGINE = 1  # changes when the same edits on the same tree give other bytes
PLATFORMS = ("macos", "linux")
MAX_TEXT = 4000
_PATH_CHARACTERS = re.compile(r"[A-Za-z0-9_.+@/-]+")

_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*$(?!\n)", max_length=80)]
_Component = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$(?!\n)")]
_Line = Annotated[str, msgspec.Meta(min_length=2, max_length=200)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_End = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$(?!\n)")]


class Check(Data, frozen=True):
    """When an edit was compared with a text of upstream.

    Parameters
    ----------
    version
        Branch, tag or commit.
    file
        Repository and path that were read.
    date
        The day, as 2026-11-21.
    how
        `read`: somebody or a program read this text. `facts`: only a description of it was at hand.
    found
        What was found, where it is not plain.
    """

    version: _Text
    file: _Text
    date: _Day
    how: Literal["read", "facts"]
    found: str = ""


class Edit(Data, frozen=True):
    """One change of one file.

    Parameters
    ----------
    name
        Unique in the component.
    file
        Path in the tree.
    anchor
        The shortest text that finds the place. A run of white space matches any white space, line ends included. Where
        the anchor begins or ends with a letter, a digit or `_`, it matches whole words only.
    pattern
        In place of `anchor`, a regular expression without repeated groups.
    after
        Only what follows this anchor counts; it must match once. Of what follows, the first `matches` matches count.
    until
        With it, what is edited reaches from the anchor to the end of the next match of this.
    matches
        How many times the anchor must match.
    action
        What is done at each match. `guard` puts the lines between `#if` and `#endif`, in CMake files between `if()` and
        `endif()`.
    text
        The new text, or the condition of a guard.
    scope
        Whether the match alone or its whole lines are meant. Default: `text` for `replace`, `line` for the others.
    reason
        Why, in a sentence.
    platform
        Who needs it: builds for macOS, or any build.
    checked
        What it was compared with.
    gone
        A regular expression; if the file has it, upstream no longer needs the edit.
    """

    name: _Name
    file: _Text
    action: Literal["replace", "insert-before", "insert-after", "delete", "guard"]
    reason: _Text
    checked: Annotated[list[Check], msgspec.Meta(min_length=1)]
    anchor: _Line | None = None
    pattern: _Line | None = None
    after: _Line | None = None
    until: _End | None = None
    matches: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT)] = ""
    scope: Literal["text", "line"] | None = None
    platform: Literal["macos", "any"] = "macos"
    gone: _Line | None = None

    @property
    def whole_lines(self) -> bool:
        """Whether the edit is about whole lines."""
        return (self.scope or ("text" if self.action == "replace" else "line")) == "line"


class EditFile(Data, frozen=True):
    """The edits of one file in `patches/<component>/`."""

    schema: Literal[1]
    component: _Component
    edits: Annotated[list[Edit], msgspec.Meta(min_length=1)]


def load_edits(path: Path) -> list[EditFile]:
    """Read and check one edit file, or all `*.toml` of a folder in order of name.

    Raises
    ------
    PatchError
        With file, key and reason; also if there is none.
    """
    with os_errors(path):
        paths = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not paths:
        raise PatchError("there are no edits", where=path, hint="a folder of edits has files <name>.toml")
    files = []
    names: dict[str, Path] = {}
    for entry in paths:
        file = load_toml(entry, EditFile, PatchError)
        if path.is_dir() and file.component != path.resolve().name:
            raise PatchError(f"component is {file.component!r}, the folder is {path.resolve().name!r}", where=entry)
        for edit in file.edits:
            if names.setdefault(edit.name, entry) != entry or [e.name for e in file.edits].count(edit.name) > 1:
                raise PatchError(f"two edits have the name {edit.name!r}", where=entry)
            check_edit(edit, entry)
        files.append(file)
    return files


def check_edit(edit: Edit, where: object) -> None:
    """Refuse an edit that contradicts itself, leaves the tree, or whose pattern may take for ever.

    Raises
    ------
    PatchError
        With the name of the edit and the reason.
    """
    problem = _problem(edit)
    if problem is not None:
        raise PatchError(f"edit {edit.name!r}: {problem}", where=where)


def _problem(edit: Edit) -> str | None:
    if (edit.anchor is None) == (edit.pattern is None):
        return "it has either an anchor or a pattern"
    anchors = [text for text in (edit.anchor, edit.after, edit.until) if text is not None]
    patterns = [text for text in (edit.pattern, edit.gone) if text is not None]
    problems = [*map(check_anchor, anchors), *map(check_pattern, patterns), _path_problem(edit.file)]
    found = next((problem for problem in problems if problem), None)
    if found:
        return found
    if "\r" in edit.text or "\0" in edit.text:
        return "the text has control characters"
    if edit.action == "delete":
        return "a deletion has no text" if edit.text else None
    if not edit.text.strip():
        return f"{edit.action} needs a text"
    if edit.action == "guard" and ("\n" in edit.text or edit.scope == "text"):
        return "a guard has a condition of one line and is about whole lines"
    return None


def _path_problem(path: str) -> str | None:
    parts = path.split("/")
    if not _PATH_CHARACTERS.fullmatch(path) or any(part in {"", ".", ".."} for part in parts):
        return f"{path!r} is not a plain path inside the tree"
    return "it is about macbuild's own or git's files" if parts[0] in {".git", ".macbuild-edits.json"} else None


def wanted_on(files: Sequence[EditFile], platform: str) -> list[Edit]:
    """Return the edits that a build for `macos` or `linux` needs, in order."""
    if platform not in PLATFORMS:
        raise PatchError(f"unknown platform {platform!r}", hint=f"one of {', '.join(PLATFORMS)}")
    return [edit for file in files for edit in file.edits if edit.platform in {"any", platform}]


def edits_digest(files: Sequence[EditFile], platform: str) -> str:
    """Return the sha256, in hex, of all that decides what the edits make of a tree, for the key of a step."""
    edits = [
        {key: value for key, value in msgspec.to_builtins(edit).items() if key not in {"reason", "checked"}}
        for edit in wanted_on(files, platform)
    ]
    return digest({"engine": ENGINE, "edits": edits})
