"""The fix step: make every Mach-O file of a stage relocatable and signed."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from macbuild.errors import MachOError, RepairError, SignatureError
from macbuild.files import copy_file
from macbuild.macho.constants import FAT_MAGIC, FileType
from macbuild.macho.edit import Edits, edit_private
from macbuild.macho.exports import restrict_exports
from macbuild.macho.fat import thin
from macbuild.macho.file import is_macho, open_macho
from macbuild.macho.image import Image
from macbuild.macho.sign import sign_private
from macbuild.macho.verify import verify_file
from macbuild.recipe import Repair
from macbuild.stage import files_below, link_or_copy

__all__ = ["Change", "fix", "is_loadable", "is_system"]

_SYSTEM = ("/usr/lib/", "/System/Library/")
_LOADABLE = {FileType.DYLIB, FileType.BUNDLE, FileType.EXECUTE}


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to one file, for the log."""

    file: str
    edits: Edits
    signed: bool


def fix(
    source: Path, stage: Path, repair: Repair, arch: str, exports: Sequence[tuple[str, Sequence[str]]] = ()
) -> list[Change]:
    """Repair a stage: exports, ids, dependencies, rpaths, then signatures.

    Parameters
    ----------
    source
        The installed stage; it is not changed.
    stage
        A folder that does not exist yet. Mach-O files in it are new inodes, all else is hard-linked.
    repair
        Exceptions from the recipe.
    arch
        The slice that is kept of files that have several.
    exports
        Globs on the path in the stage, each with globs on the symbols that such a file may export; others become
        private.

    Raises
    ------
    RepairError
        If a dependency is neither of the system nor in the tree, or a file lacks the architecture.
    MachOError, HeaderRoomError
        If a file is malformed or has no room for what must be written.
    """
    stage.mkdir()
    leaves = _leaves(source)
    changes = []
    for path in files_below(source):
        relative = PurePosixPath(path.relative_to(source).as_posix())
        target = stage / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or not is_loadable(path):
            link_or_copy(path, target)
            continue
        _copy_slice(path, target, relative, arch)
        keep = next((names for glob, names in exports if fnmatchcase(str(relative), glob)), None)
        if keep is not None:
            restrict_exports(target, keep)
        changes.append(_fix_file(target, relative, leaves, repair))
    return changes


def is_system(name: str) -> bool:
    """Whether a dependency is part of macOS; a path that goes upwards leads anywhere."""
    return name.startswith(_SYSTEM) and ".." not in name.split("/")


def is_loadable(path: Path) -> bool:
    """Whether a file is Mach-O that the loader takes; object files and archives of them are for linkers."""
    if not is_macho(path) or _is_universal_archive(path):
        return False
    with open_macho(path) as file:
        return all(image.filetype in _LOADABLE for image in file.images)


def _is_universal_archive(path: Path) -> bool:
    with path.open("rb") as file:
        magic, _, _, _, offset = struct.unpack(">5I", file.read(20).ljust(20, b"\0"))
        file.seek(offset)
        return magic == FAT_MAGIC and file.read(8) == b"!<arch>\n"


def _copy_slice(path: Path, target: Path, relative: PurePosixPath, arch: str) -> None:
    with open_macho(path) as file:
        archs, is_fat = file.archs, file.is_fat
    if arch not in archs:
        raise RepairError(f"has {', '.join(archs)}, not {arch}", where=relative)
    if is_fat:
        thin(path, arch, target)
    else:
        copy_file(path, target)


def _fix_file(
    path: Path, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]], repair: Repair
) -> Change:
    with open_macho(path) as file:
        (image,) = file.images
        edits = _edits(image, relative, leaves, repair)
    edit_private(path, edits)
    try:
        verify_file(path)
    except SignatureError:
        # Never signed, or broken by its vendor: an edit mends only the pages it touched.
        sign_private(path)
        return Change(str(relative), edits, signed=True)
    return Change(str(relative), edits, signed=False)


def _edits(
    image: Image, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]], repair: Repair
) -> Edits:
    change: dict[str, str] = {}
    rpaths: set[str] = set()
    for dylib in image.dylibs:
        name = _new_name(dylib.name, relative, leaves, repair)
        if name != dylib.name:
            change[dylib.name] = name
        if name.startswith("@rpath/") and not _is_external(name, repair):
            rpaths.add(_rpath(relative, _provider(name, relative, leaves)))
    identity = None
    if image.filetype == FileType.DYLIB:
        if image.id is None:
            raise MachOError("a dylib without an install name", where=str(relative))
        rule = next((rule for rule in repair.ids if fnmatchcase(str(relative), rule.file)), None)
        identity = rule.id if rule else f"@rpath/{relative.name}"
    # The shortest first: the file's own folder is where the loader should look first.
    return Edits(id=identity, change=change, rpaths=tuple(sorted(rpaths, key=lambda rpath: (len(rpath), rpath))))


def _new_name(name: str, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]], repair: Repair) -> str:
    rule = next((rule for rule in repair.dependencies if fnmatchcase(name, rule.match)), None)
    if rule is not None:
        return rule.to
    if is_system(name) or _is_external(name, repair):
        return name
    leaf = PurePosixPath(name).name
    if leaf in leaves:
        return f"@rpath/{leaf}"
    raise RepairError(
        f"depends on {name}, which is neither part of macOS nor in the tree",
        where=str(relative),
        hint="add the file to the recipe's layout, or a [[repair.dependencies]] with the reason",
    )


def _is_external(name: str, repair: Repair) -> bool:
    return any(fnmatchcase(name, rule.match) for rule in repair.external)


def _provider(name: str, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]]) -> PurePosixPath:
    leaf = PurePosixPath(name).name
    places = leaves.get(leaf, ())
    beside = relative.parent / leaf
    if beside in places:
        return beside
    if len(places) != 1:
        found = " and ".join(map(str, places)) or "nowhere"
        raise RepairError(f"depends on {name}, which is at {found} in the tree", where=str(relative))
    return places[0]


def _rpath(relative: PurePosixPath, provider: PurePosixPath) -> str:
    path = os.path.relpath(provider.parent, relative.parent)
    return "@loader_path" if path == "." else f"@loader_path/{path}"


def _leaves(root: Path) -> dict[str, list[PurePosixPath]]:
    """Return where each Mach-O file of the tree, or link to one, can be found by its last name."""
    leaves: dict[str, list[PurePosixPath]] = {}
    for path in files_below(root):
        if is_macho(path):
            leaves.setdefault(path.name, []).append(PurePosixPath(path.relative_to(root).as_posix()))
    return leaves
