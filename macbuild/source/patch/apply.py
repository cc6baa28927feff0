"""Apply edits to a tree: all of them or none, with a record of what was done."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from macbuild.errors import MacbuildError, PatchError
from macbuild.files import walk
from macbuild.source.patch.match import EditReport, examine
from macbuild.source.patch.model import Edit, EditFile, check_edit, wanted_on
from macbuild.source.patch.record import (
    EditedFile,
    EditOutcome,
    Hunk,
    Layer,
    Record,
    read_member,
    read_record,
    restore_record,
    save_record,
    sha256,
    write_members,
)
from macbuild.store import digest

__all__ = ["apply_edits", "check_edits", "edit_text", "failure"]


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A file before and after its edits."""

    old: bytes
    new: bytes
    hunks: list[Hunk]


def check_edits(tree: Path, files: Sequence[EditFile], platform: str) -> list[EditReport]:
    """Return what each edit that `platform` needs would do in a tree; nothing is written.

    Raises
    ------
    PatchError
        The tree is not a folder, a path in it is a link, or two edits conflict.
    """
    return _plan(tree, wanted_on(files, platform), read_record(_checked(tree)))[0]


def apply_edits(tree: Path, files: Sequence[EditFile], platform: str) -> Record:
    """Apply the edits that `platform` needs to a tree.

    Files are replaced by new ones with the same permissions, line ends and encoding. What was done is written to
    `.macbuild-edits.json` in the tree. Edits that are already applied are skipped, so a second call changes nothing.

    Parameters
    ----------
    tree
        The unpacked source. Nobody else may write to it meanwhile.
    files
        What `load_edits` returned.
    platform
        `macos`, or `linux` for a build for this machine.

    Returns
    -------
    Record
        What was done, earlier runs included.

    Raises
    ------
    PatchError
        An edit is ambiguous or missing, or a file was changed since edits were applied to it. Nothing is written.
    FileError
        A file cannot be read or written.
    """
    record = read_record(_checked(tree))
    reports, rewritten = _plan(tree, wanted_on(files, platform), record)
    if any(report.is_bad for report in reports):
        raise failure(reports, tree)
    merged = _merged(record or Record(), reports, rewritten, tree)
    if merged != record:
        # Written first: after an interruption it identifies both the old and the new content of each file.
        save_record(tree, merged)
    try:
        write_members(
            tree,
            {path: entry.new for path, entry in rewritten.items()},
            {path: entry.old for path, entry in rewritten.items()},
        )
    except MacbuildError:
        restore_record(tree, record)
        raise
    return merged


def edit_text(data: bytes, edits: Sequence[Edit]) -> tuple[list[EditReport], bytes]:
    """Return what the edits of one file find in its bytes, and the edited bytes.

    Raises
    ------
    PatchError
        The file is not text, two edits change the same place, or an edit would change its own result again.
    """
    text = _decode(data, edits)
    reports = [examine(text, edit) for edit in edits]
    hunks: list[Hunk] = []
    new = _rewrite(text, reports, hunks)
    return reports, new


def failure(reports: Sequence[EditReport], tree: Path) -> PatchError:
    """Return the error that lists what was found for each bad edit."""
    bad = [report for report in reports if report.is_bad]
    lines = [f"{report.edit.name} ({report.edit.file}) is {report.state}: {report.message}" for report in bad]
    near = next((f"; the nearest: {report.near[0]}" for report in bad if report.near), "")
    hint = f"'macbuild patch check' shows all edits{near}"
    return PatchError(f"{len(bad)} edits do not fit: {'; '.join(lines)}", where=tree, hint=hint)


def _checked(tree: Path) -> Path:
    if not tree.is_dir():
        raise PatchError("there is no such folder", where=tree)
    return tree


def _plan(tree: Path, edits: Sequence[Edit], record: Record | None) -> tuple[list[EditReport], dict[str, _Rewritten]]:
    """Return what each edit finds, in the order of the edits, and each changed file before and after."""
    found: dict[str, EditReport] = {}
    rewritten: dict[str, _Rewritten] = {}
    for path in dict.fromkeys(edit.file for edit in edits):
        own = [edit for edit in edits if edit.file == path]
        for edit in own:
            check_edit(edit, path)
        data = read_member(tree, path)
        if data is None:
            near = tuple(_same_name(tree, path))
            found |= {edit.name: EditReport(edit, "missing", "there is no such file", (), near) for edit in own}
            continue
        text = _decode(data, own)
        known = _known(record, path, data)
        reports = [
            EditReport(edit, "already-applied", "the record of the tree says so")
            if edit_digest(edit) in known
            else examine(text, edit)
            for edit in own
        ]
        found |= {report.edit.name: report for report in reports}
        if not any(report.is_bad for report in reports):
            hunks: list[Hunk] = []
            new = _rewrite(text, reports, hunks)
            if new != data:
                rewritten[path] = _Rewritten(data, new, hunks)
    return [found[edit.name] for edit in edits], rewritten


def edit_digest(edit: Edit) -> str:
    """Return the sha256 of what an edit does."""
    plain = msgspec.to_builtins(edit)
    return digest({key: value for key, value in plain.items() if key not in {"reason", "checked"}})


def _known(record: Record | None, path: str, data: bytes) -> set[str]:
    """Return the digests of the edits recorded for a file, if the file is unchanged since."""
    file = record.file(path) if record else None
    if record is None or file is None or file.layers[-1].after != sha256(data):
        return set()
    return {done.digest for done in record.edits if done.file == path and done.state != "not-needed"}


def _same_name(tree: Path, path: str) -> list[str]:
    name = path.rpartition("/")[2]
    return sorted(entry.path for entry in walk(tree) if entry.path.rpartition("/")[2] == name)[:3]


def _decode(data: bytes, edits: Sequence[Edit]) -> str:
    """Return the bytes, whatever they are, as text that can be encoded to the same bytes again."""
    where = edits[0].file if edits else None
    if b"\0" in data:
        raise PatchError("is not text", where=where)
    text = data.decode("utf-8", "surrogateescape")
    if any(not edit.text.isascii() for edit in edits) and not _is_utf8(data):
        raise PatchError("is not UTF-8, and an edit of it is not ASCII", where=where)
    return text


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _rewrite(text: str, reports: Sequence[EditReport], hunks: list[Hunk]) -> bytes:
    """Return the new bytes and note the parts that changed; every edit must recognise its own result in them."""
    changes = [(change, report.edit) for report in reports for change in report.changes]
    changes.sort(key=lambda entry: (entry[0].start, entry[0].end, entry[0].opens))
    parts: list[bytes] = []
    position, size = 0, 0
    last: Edit | None = None
    for change, edit in changes:
        if change.start < position and last is not None:
            raise PatchError(f"the edits {last.name!r} and {edit.name!r} change the same place", where=edit.file)
        last = edit
        kept, new = _encode(text[position : change.start]), _encode(change.new)
        was = base64.b64encode(_encode(text[change.start : change.end])).decode()
        hunks.append(Hunk(at=size + len(kept), size=len(new), was=was))
        parts += [kept, new]
        size += len(kept) + len(new)
        position = change.end
    data = b"".join([*parts, _encode(text[position:])])
    _check_result(data, [report for report in reports if report.changes])
    return data


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _check_result(data: bytes, reports: Sequence[EditReport]) -> None:
    """Refuse edits that find something to do in their own result: a second run would do it again."""
    text = data.decode("utf-8", "surrogateescape")
    for report in reports:
        again = examine(text, msgspec.structs.replace(report.edit, gone=None))
        if again.state not in {"already-applied", "missing"}:
            problem = f"after the edit {report.edit.name!r} its anchor is found again, or another edit changed its text"
            raise PatchError(problem, where=report.edit.file, hint="choose a longer anchor")


def _merged(record: Record, reports: Sequence[EditReport], rewritten: Mapping[str, _Rewritten], tree: Path) -> Record:
    done = {entry.name: entry for entry in record.edits}
    for report in reports:
        state = report.state
        assert state in {"applied", "already-applied", "not-needed"}
        before = done.get(report.edit.name)
        sign = edit_digest(report.edit)
        if before is None or before.digest != sign or state == "applied" or before.state == "not-needed":
            done[report.edit.name] = EditOutcome(name=report.edit.name, file=report.edit.file, state=state, digest=sign)
    files = {file.path: file for file in record.files}
    for path, entry in rewritten.items():
        layer = Layer(before=sha256(entry.old), after=sha256(entry.new), hunks=entry.hunks)
        earlier = list(files[path].layers) if path in files else []
        while earlier and earlier[-1].before == layer.before:
            earlier.pop()  # it was recorded and never written
        if earlier and earlier[-1].after != layer.before:
            hint = "undo your changes, or start from a fresh tree"
            raise PatchError("changed since edits were applied to it", where=tree / path, hint=hint)
        files[path] = EditedFile(path=path, layers=[*earlier, layer])
    return Record(edits=list(done.values()), files=[files[path] for path in sorted(files)])
