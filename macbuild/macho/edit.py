"""Change install names, dependencies, rpaths, versions and the signature of a Mach-O file, in one pass.

An edit is planned in full (`rewrite`) before the first byte is written, and then touches only the pages that it must:
the load commands, the hashes of these pages in the signature and, if a dependency is removed, the ordinals.
"""

from __future__ import annotations

from pathlib import Path

from macbuild.errors import MachOError
from macbuild.files import copy_contents, new_file
from macbuild.macho.file import MachOFile, ParsedFile, open_macho
from macbuild.macho.image import Image
from macbuild.macho.private import PrivateFile, open_private
from macbuild.macho.rewrite import Edits, SlicePlan, plan_edits

__all__ = ["Edits", "edit_file", "edit_open", "edit_private"]


def edit_file(path: Path, edits: Edits, *, output: Path | None = None, archs: frozenset[str] | None = None) -> bool:
    """Edit a Mach-O file by writing a new one beside it, so that a running process keeps what it has mapped.

    A valid ad hoc signature is valid afterwards; any other signature is replaced by an ad hoc one, and a file that
    was never signed stays so. Permissions are kept, the modification time is not.

    Parameters
    ----------
    path
        The file to edit; it is untouched on every error.
    edits
        The changes. Each slice takes those that apply to it.
    output
        Where to write, if not at `path`. It is written even if there is nothing to change.
    archs
        The slices to edit, if not all.

    Returns
    -------
    bool
        True if anything changed; if not, `path` was not written.

    Raises
    ------
    HeaderRoomError
        If the load commands no longer fit before the first content.
    MachOError
        If the file is malformed, or no slice has what must change.
    SignatureError
        If the signature is malformed.
    FileError, NoSpaceError
        If the new file cannot be written.
    """
    with open_macho(path) as macho:
        plans = _plan(macho, edits, archs)
        known = ParsedFile(path, len(macho.data), macho.images, macho.fat)
    target = path if output is None else output
    if not plans and (output is None or output.resolve() == path.resolve()):
        return False
    with new_file(target, path) as temporary:
        copy_contents(path, temporary)
        if plans:
            with open_private(temporary, known.at(temporary)) as private:
                private.patch(plans)
                private.commit()
    return bool(plans)


def edit_private(path: Path, edits: Edits, *, archs: frozenset[str] | None = None) -> bool:
    """Edit a Mach-O file in place: for files just unpacked into a private folder, which nobody can have executed.

    Parameters, errors and the effect on the signature are those of `edit_file`. The file is untouched if the edit is
    refused, but undefined if it cannot be written or signed again.
    """
    with open_private(path) as private:
        return edit_open(private, edits, archs=archs)


def edit_open(private: PrivateFile, edits: Edits, *, archs: frozenset[str] | None = None) -> bool:
    """Edit an open private file, as `edit_private` does."""
    plans = _plan(private.macho, edits, archs)
    private.patch(plans)
    private.commit()
    return bool(plans)


def _plan(macho: MachOFile, edits: Edits, archs: frozenset[str] | None) -> list[SlicePlan]:
    """Return what to do to each slice that changes."""
    return [plan for plan in plan_edits(_selected(macho, archs), edits, macho.where) if plan.patches]


def _selected(file: MachOFile, archs: frozenset[str] | None) -> list[Image]:
    if archs is None:
        return list(file.images)
    if not archs:
        raise MachOError("no slice is chosen", where=file.where, hint=f"choose from {', '.join(file.archs)}")
    if absent := sorted(archs - set(file.archs)):
        raise MachOError(f"has no slice {absent[0]}; it has {', '.join(file.archs)}", where=file.where)
    return [image for image in file.images if image.arch in archs]
