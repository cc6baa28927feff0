"""Edits as data: what an edit file says, and what of it is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from macbuild.data import Data
from macbuild.documents import load_document
from macbuild.errors import PatchError
from macbuild.files import os_errors
from macbuild.source.patch.anchors import check_anchor, check_pattern
from macbuild.store import digest

__all__ = ["PLATFORMS", "Edit", "EditCheck", "EditFile", "edits_digest", "load_edits", "wanted_on"]

ENGINE = 1  # changes when the same edits on the same tree give other bytes
PLATFORMS = ("macos", "linux")
MAX_TEXT = 4000
_PATH_CHARACTERS = re.compile(r"[A-Za-z0-9_.+@/-]+")

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$(?!\n)", max_length=80)]
_Component = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$(?!\n)")]
_Line = Annotated[str, Meta(min_length=2, max_length=200)]
_Text = Annotated[str, Meta(min_length=1)]
_End = Annotated[str, Meta(min_length=1, max_length=200)]
_Day = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$(?!\n)")]


class EditCheck(Data, frozen=True):
    """A comparison of an edit with a text of upstream."""

    version: Annotated[_Text, Meta(description="branch, tag or commit")]
    file: Annotated[_Text, Meta(description="repository and path that were read")]
    date: Annotated[_Day, Meta(description="the day, as 2026-11-21")]
    how: Annotated[
        Literal["read", "facts"],
        Meta(
            description="`read`: a person or a program read this text. `facts`: only a description of it was available"
        ),
    ]
    found: Annotated[str, Meta(description="what was found, where it is not plain")] = ""


class Edit(Data, frozen=True):
    """One change of one file."""

    name: Annotated[_Name, Meta(description="unique in the component")]
    file: Annotated[_Text, Meta(description="path in the tree")]
    action: Annotated[
        Literal["replace", "insert-before", "insert-after", "delete", "guard"],
        Meta(
            description="what is done at each match. `guard` puts the lines between `#if` and `#endif`, in CMake "
            "files between `if()` and `endif()`",
        ),
    ]
    reason: Annotated[_Text, Meta(description="why, in a sentence")]
    checked: Annotated[list[EditCheck], Meta(min_length=1, description="what it was compared with")]
    anchor: Annotated[
        _Line | None,
        Meta(
            description="the shortest text that finds the place. A run of white space matches any white space, line "
            "ends included. Where the anchor begins or ends with a letter, a digit or `_`, it matches "
            "whole words only",
        ),
    ] = None
    pattern: Annotated[
        _Line | None, Meta(description="instead of `anchor`, a regular expression without repeated groups")
    ] = None
    after: Annotated[
        _Line | None,
        Meta(
            description="only what follows this anchor counts; it must match once. Of what follows, the first "
            "`matches` matches count",
        ),
    ] = None
    until: Annotated[
        _End | None,
        Meta(description="with it, what is edited reaches from the anchor to the end of the next match of this"),
    ] = None
    matches: Annotated[int, Meta(ge=1, le=1000, description="how many times the anchor must match")] = 1
    text: Annotated[str, Meta(max_length=MAX_TEXT, description="the new text, or the condition of a guard")] = ""
    scope: Annotated[
        Literal["text", "line"] | None,
        Meta(
            description="`text` for the match alone, `line` for its whole lines. Default: `text` for `replace`, "
            "`line` for the others",
        ),
    ] = None
    platform: Annotated[Literal["macos", "any"], Meta(description="who needs it: builds for macOS, or any build")] = (
        "macos"
    )
    gone: Annotated[
        _Line | None, Meta(description="a regular expression; if the file has it, upstream no longer needs the edit")
    ] = None

    @property
    def whole_lines(self) -> bool:
        """True if the edit changes whole lines."""
        return (self.scope or ("text" if self.action == "replace" else "line")) == "line"


class EditFile(Data, frozen=True):
    """The edits of one file in `patches/<component>/`."""

    schema: Annotated[Literal[1], Meta(description="version of this format")]
    component: Annotated[_Component, Meta(description="the name of the folder")]
    edits: Annotated[
        list[Edit], Meta(min_length=1, description="each is applied to the file as it was before all of them")
    ]


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
        file = load_document(entry, EditFile, PatchError)
        if path.is_dir() and file.component != path.resolve().name:
            raise PatchError(f"component is {file.component!r}, the folder is {path.resolve().name!r}", where=entry)
        for edit in file.edits:
            if names.setdefault(edit.name, entry) != entry or [e.name for e in file.edits].count(edit.name) > 1:
                raise PatchError(f"two edits have the name {edit.name!r}", where=entry)
            check_edit(edit, entry)
        files.append(file)
    return files


def check_edit(edit: Edit, where: object) -> None:
    """Refuse an edit that contradicts itself, leaves the tree, or whose pattern may take forever.

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
