"""Record in a tree what was done to it, so that it can be shown and reverted exactly."""

from __future__ import annotations

import base64
import binascii
import hashlib
import stat
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from macbuild.data import Data, convert, from_json
from macbuild.errors import MacbuildError, PatchError
from macbuild.files import atomic_path, new_file, os_errors

__all__ = [
    "RECORD",
    "EditOutcome",
    "EditedFile",
    "Hunk",
    "Layer",
    "Record",
    "read_member",
    "read_record",
    "restore_record",
    "revert_edits",
    "save_record",
    "sha256",
    "write_members",
]

RECORD = ".macbuild-edits.json"
MAX_MEMBER = 8 << 20
_Sha = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
_Offset = Annotated[int, msgspec.Meta(ge=0)]


class EditOutcome(Data, frozen=True):
    """An edit and its outcome. `digest` is that of the edit."""

    name: str
    file: str
    state: Literal["applied", "already-applied", "not-needed"]
    digest: _Sha


class Hunk(Data, frozen=True):
    """`size` bytes at the offset `at` of the new file took the place of `was`, in base64."""

    at: _Offset
    size: _Offset
    was: str


class Layer(Data, frozen=True):
    """The change that one run made to a file. `before` and `after` are the sha256 of the file."""

    before: _Sha
    after: _Sha
    hunks: list[Hunk]


class EditedFile(Data, frozen=True):
    """The changes to a file, the oldest layer first."""

    path: str
    layers: Annotated[list[Layer], msgspec.Meta(min_length=1)]


class Record(Data, frozen=True):
    """All that was done to a tree."""

    version: Literal[1] = 1
    edits: list[EditOutcome] = []
    files: list[EditedFile] = []

    def file(self, path: str) -> EditedFile | None:
        """Return the changes to a file."""
        return next((file for file in self.files if file.path == path), None)


def sha256(data: bytes) -> str:
    """Return the sha256 in hex."""
    return hashlib.sha256(data).hexdigest()


def read_member(tree: Path, path: str) -> bytes | None:
    """Return the bytes of a file of the tree, or None if it is not there.

    Raises
    ------
    PatchError
        The path leaves the tree, leads through a link, is not a regular file, or the file is larger than 8 MiB.
    FileError
        It cannot be read.
    """
    parts = path.split("/")
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise PatchError("leaves the tree", where=path)
    place = tree
    with os_errors(place):
        for index, part in enumerate(parts):
            place /= part
            try:
                state = place.lstat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            if stat.S_ISLNK(state.st_mode):
                raise PatchError("is a link; edits only apply to plain files in plain folders", where=place)
            if index < len(parts) - 1 and not stat.S_ISDIR(state.st_mode):
                return None
        if not stat.S_ISREG(state.st_mode):
            raise PatchError("is not a file", where=place)
        if state.st_size > MAX_MEMBER:
            raise PatchError(f"is larger than {MAX_MEMBER >> 20} MiB", where=place)
        return place.read_bytes()


def write_members(tree: Path, new: Mapping[str, bytes], old: Mapping[str, bytes]) -> None:
    """Replace files by new ones with the same permissions: all of them, or none if there is an error.

    Raises
    ------
    FileError
        One cannot be written.
    """
    try:
        with ExitStack() as stack:
            for path, data in new.items():
                stack.enter_context(new_file(tree / path, tree / path)).write_bytes(data)
    except (MacbuildError, KeyboardInterrupt):
        for path, data in old.items():
            if read_member(tree, path) != data:
                with new_file(tree / path, tree / path) as place:
                    place.write_bytes(data)
        raise


def read_record(tree: Path) -> Record | None:
    """Return the record of a tree, or None if nothing was done to it.

    Raises
    ------
    PatchError
        It is not a record.
    """
    data = read_member(tree, RECORD)
    if data is None:
        return None
    try:
        plain = from_json(data, dict[str, object])
    except msgspec.MsgspecError as error:
        raise PatchError(f"is not a record of edits: {error}", where=tree / RECORD) from error
    return convert(plain, Record, tree / RECORD, PatchError)


def save_record(tree: Path, record: Record) -> None:
    """Write the record of a tree."""
    data = msgspec.json.format(msgspec.json.encode(record), indent=1)
    with atomic_path(tree / RECORD) as path:
        path.write_bytes(data + b"\n")


def restore_record(tree: Path, record: Record | None) -> None:
    """Restore the record that a tree had, if any."""
    if record is not None:
        save_record(tree, record)
        return
    with os_errors(tree / RECORD):
        (tree / RECORD).unlink(missing_ok=True)


def revert_edits(tree: Path) -> Record:
    """Restore the bytes that every file had before its first edit, and remove the record.

    Returns
    -------
    Record
        What was taken back.

    Raises
    ------
    PatchError
        The tree has no record, or a file was changed since; then nothing is written.
    """
    record = read_record(tree)
    if record is None:
        raise PatchError("no edits were applied here", where=tree)
    old: dict[str, bytes] = {}
    new: dict[str, bytes] = {}
    changed = []
    for file in record.files:
        data = read_member(tree, file.path)
        before = None if data is None else _undo(data, file.layers, tree / file.path)
        if data is None or before is None:
            changed.append(file.path)
        elif before != data:
            old[file.path], new[file.path] = data, before
    if changed:
        hint = "undo your changes first, or start from a fresh tree"
        raise PatchError(f"changed since the edits were applied: {', '.join(changed)}", where=tree, hint=hint)
    write_members(tree, new, old)
    restore_record(tree, None)
    return record


def _undo(data: bytes, layers: Iterable[Layer], where: Path) -> bytes | None:
    """Return the bytes before all layers; None if the file is not as a layer left it. A layer may be unwritten."""
    for layer in reversed(list(layers)):
        if sha256(data) == layer.before:
            continue
        if sha256(data) != layer.after:
            return None
        data = _without(data, layer, where)
        if sha256(data) != layer.before:
            raise PatchError("the record does not lead back to the old file", where=where)
    return data


def _without(data: bytes, layer: Layer, where: Path) -> bytes:
    parts = []
    position = 0
    for hunk in layer.hunks:
        if hunk.at < position:
            raise PatchError("the record has its parts out of order", where=where)
        try:
            was = base64.b64decode(hunk.was, validate=True)
        except (binascii.Error, ValueError) as error:
            raise PatchError("the record is damaged", where=where) from error
        parts += [data[position : hunk.at], was]
        position = hunk.at + hunk.size
    return b"".join([*parts, data[position:]])
