"""Change install names, dependencies, rpaths, versions and the signature of a Mach-O file, in one pass.

An edit is worked out in full (`rewrite`) before the first byte is written, and then touches only the pages that it
must: the load commands, the hashes of these pages in the signature and, if a dependency goes away, its ordinals.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from macbuild.errors import MachOError
from macbuild.files import new_file, os_errors
from macbuild.macho.fat import merge, thin
from macbuild.macho.file import MachOFile, open_macho
from macbuild.macho.image import Image
from macbuild.macho.rewrite import Edits, SlicePlan, plan_edits
from macbuild.macho.sign import refresh, sign_private

__all__ = ["Edits", "apply_plans", "edit_file", "edit_private"]


def edit_file(path: Path, edits: Edits, *, output: Path | None = None, archs: frozenset[str] | None = None) -> bool:
    """Edit a Mach-O file by writing a new one beside it, so that a running process keeps what it has mapped.

    A valid ad hoc signature is valid afterwards; any other signature is replaced by an ad hoc one, and a file that
    was never signed stays so. Permissions are kept, the modification time is not.

    Parameters
    ----------
    path
        The file to edit; it is untouched on every error.
    edits
        What to change. Each slice takes of it what it has.
    output
        Where to write, if not at `path`. It is written even if there is nothing to change.
    archs
        The slices to edit, if not all.

    Returns
    -------
    bool
        Whether anything changed; if not, `path` was not written.

    Raises
    ------
    HeaderRoomError
        If the load commands no longer fit before the first content.
    MachOError
        If the file is malformed, or no slice has what shall change.
    SignatureError
        If the signature is malformed.
    StoreError, NoSpaceError
        If the new file cannot be written.
    """
    plans = _plan(path, edits, archs)
    target = path if output is None else output
    if not plans and (output is None or output.resolve() == path.resolve()):
        return False
    with new_file(target, path) as temporary:
        shutil.copyfile(path, temporary)
        apply_plans(temporary, plans)
    return bool(plans)


def edit_private(path: Path, edits: Edits, *, archs: frozenset[str] | None = None) -> bool:
    """Edit a Mach-O file in place: for files just unpacked into a private folder, which nobody can have executed.

    What it does to the signature, its parameters and its errors are those of `edit_file`. It is untouched where the
    edit is refused, but of no worth if writing or signing it anew fails.
    """
    plans = _plan(path, edits, archs)
    if plans:
        apply_plans(path, plans)
    return bool(plans)


def _plan(path: Path, edits: Edits, archs: frozenset[str] | None) -> list[SlicePlan]:
    """Return what to do to each slice that changes."""
    with open_macho(path) as file:
        images = _selected(file, archs)
        return [plan for plan in plan_edits(images, edits, str(path)) if plan.patches]


def _selected(file: MachOFile, archs: frozenset[str] | None) -> list[Image]:
    if archs is None:
        return list(file.images)
    if not archs:
        raise MachOError("no slice is chosen", where=file.where, hint=f"there are: {', '.join(file.archs)}")
    if absent := sorted(archs - set(file.archs)):
        raise MachOError(f"has no slice {absent[0]}; there: {', '.join(file.archs)}", where=file.where)
    return [image for image in file.images if image.arch in archs]


def apply_plans(path: Path, plans: Sequence[SlicePlan]) -> None:
    """Do in place what was worked out for the slices of a private file, and make its signature good again.

    A valid ad hoc signature is valid afterwards; any other signature is replaced by an ad hoc one, and a file that
    was never signed stays so. The file is of no worth if this fails.

    Raises
    ------
    MachOError, SignatureError
        If it cannot be signed anew.
    StoreError, NoSpaceError
        If it cannot be written.
    """
    with open_macho(path) as file:
        archs = file.archs if file.is_fat else ()
    with os_errors(path):
        if archs and any(plan.size != plan.old_size for plan in plans):
            _rebuild(path, archs, plans)
        else:
            _write(path, plans)


def _rebuild(path: Path, archs: Sequence[str], plans: Sequence[SlicePlan]) -> None:
    """Edit each slice as a thin file and merge them again, since one of them gets shorter."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        parts = [Path(folder, arch) for arch in archs]
        for arch, part in zip(archs, parts, strict=True):
            thin(path, arch, part)
            _write(part, [replace(plan, offset=0) for plan in plans if plan.arch == arch])
        merge(parts, path)


def _write(path: Path, plans: Sequence[SlicePlan]) -> None:
    """Write the plans of a file in place, and make its signature good again."""
    with path.open("r+b") as file:
        # A private mapping: an error in it leaves the file as it is, and a full disk is an error of `write`.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as data:
            images = [_patch(data, plan) for plan in plans]
            refreshed = [_refresh(data, image, plan) for image, plan in zip(images, plans, strict=True)]
            for image, plan in zip(images, plans, strict=True):
                for start, stop in (*_ranges(plan), *_signature(image)):
                    file.seek(plan.offset + start)
                    file.write(data[plan.offset + start : plan.offset + stop])
        if len(plans) == 1 and plans[0].size != plans[0].old_size:
            file.truncate(plans[0].size)
    if not all(refreshed):
        sign_private(path)


def _patch(data: mmap.mmap, plan: SlicePlan) -> Image:
    for start, new in plan.patches:
        data[plan.offset + start : plan.offset + start + len(new)] = new
    return Image(data, plan.offset, plan.old_size, plan.where)


def _refresh(data: mmap.mmap, image: Image, plan: SlicePlan) -> bool:
    return not _signature(image) or refresh(data, image, _ranges(plan))


def _ranges(plan: SlicePlan) -> list[tuple[int, int]]:
    return [(start, start + len(new)) for start, new in plan.patches]


def _signature(image: Image) -> list[tuple[int, int]]:
    found = image.signature_range
    return [] if found is None else [(found[0], sum(found))]
