"""The fix step: make every Mach-O file of a stage relocatable and signed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from macbuild.errors import FixError, MachOError, SignatureError
from macbuild.files import copy_file, files_below, link_or_copy
from macbuild.macho.constants import FileType
from macbuild.macho.edit import Edits, edit_open
from macbuild.macho.exports import restrict_open
from macbuild.macho.fat import write_slice
from macbuild.macho.file import ParsedFile, read_loadable
from macbuild.macho.image import Image
from macbuild.macho.private import PrivateFile, open_private
from macbuild.macho.system import is_system
from macbuild.recipe.model import FixRules

__all__ = ["FileFix", "fix"]


@dataclass(frozen=True, slots=True)
class FileFix:
    """The changes of one file, for the log."""

    file: str
    edits: Edits
    signed: bool


def fix(
    source: Path, stage: Path, rules: FixRules, arch: str, exports: Sequence[tuple[str, Sequence[str]]] = ()
) -> list[FileFix]:
    """Fix a stage: exports, ids, dependencies, rpaths, then signatures.

    Parameters
    ----------
    source
        The installed stage; it is not changed.
    stage
        A folder that does not exist yet. Mach-O files in it are new inodes, all other files are hard-linked.
    rules
        Exceptions from the recipe.
    arch
        The slice that is kept of files that have several.
    exports
        Globs on the path in the stage, each with globs on the symbols that such a file may export; others become
        private.

    Raises
    ------
    FixError
        If a dependency is neither part of macOS nor in the tree, or a file lacks the architecture.
    MachOError, HeaderRoomError
        If a file is malformed or has no room for the new load commands.
    """
    stage.mkdir()
    paths = list(files_below(source))
    files = {path: file for path in paths if not path.is_symlink() and (file := read_loadable(path)) is not None}
    leaves = _leaves(source, paths, files)
    changes = []
    for path in paths:
        relative = PurePosixPath(path.relative_to(source).as_posix())
        target = stage / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if path not in files:
            link_or_copy(path, target)
            continue
        copy = _copy_slice(files[path], target, relative, arch)
        keep = next((names for glob, names in exports if fnmatchcase(str(relative), glob)), None)
        with open_private(target, copy) as private:
            if keep is not None:
                restrict_open(private, keep)
            changes.append(_fix_file(private, relative, leaves, rules))
    return changes


def _copy_slice(file: ParsedFile, target: Path, relative: PurePosixPath, arch: str) -> ParsedFile:
    if arch not in file.archs:
        raise FixError(f"has {', '.join(file.archs)}, not {arch}", where=relative)
    if file.is_fat:
        return write_slice(file, arch, target)
    copy_file(file.path, target)
    return file.at(target)


def _fix_file(
    private: PrivateFile, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]], rules: FixRules
) -> FileFix:
    (image,) = private.macho.images
    edits = _edits(image, relative, leaves, rules)
    edit_open(private, edits)
    try:
        private.verify()
    except SignatureError:
        # Never signed, or broken by its vendor: an edit corrects only the hashes of the pages that it touched.
        private.sign()
        return FileFix(str(relative), edits, signed=True)
    return FileFix(str(relative), edits, signed=False)


def _edits(
    image: Image, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]], rules: FixRules
) -> Edits:
    change: dict[str, str] = {}
    rpaths: set[str] = set()
    for dylib in image.dylibs:
        name = _new_name(dylib.name, relative, leaves, rules)
        if name != dylib.name:
            change[dylib.name] = name
        if name.startswith("@rpath/") and not _is_external(name, rules):
            rpaths.add(_rpath(relative, _provider(name, relative, leaves)))
    identity = None
    if image.filetype == FileType.DYLIB:
        if image.id is None:
            raise MachOError("a dylib without an install name", where=str(relative))
        rule = next((rule for rule in rules.ids if fnmatchcase(str(relative), rule.file)), None)
        identity = rule.id if rule else f"@rpath/{relative.name}"
    # The shortest first: the file's own folder is where the loader should look first.
    return Edits(id=identity, change=change, rpaths=tuple(sorted(rpaths, key=lambda rpath: (len(rpath), rpath))))


def _new_name(
    name: str, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]], rules: FixRules
) -> str:
    rule = next((rule for rule in rules.dependencies if fnmatchcase(name, rule.match)), None)
    if rule is not None:
        return rule.to
    if is_system(name) or _is_external(name, rules):
        return name
    leaf = PurePosixPath(name).name
    if leaf in leaves:
        return f"@rpath/{leaf}"
    raise FixError(
        f"depends on {name}, which is neither part of macOS nor in the tree",
        where=str(relative),
        hint="add the file to the recipe's layout, or a [[fix.dependencies]] with the reason",
    )


def _is_external(name: str, rules: FixRules) -> bool:
    return any(fnmatchcase(name, rule.match) for rule in rules.external)


def _provider(name: str, relative: PurePosixPath, leaves: Mapping[str, Sequence[PurePosixPath]]) -> PurePosixPath:
    leaf = PurePosixPath(name).name
    places = leaves.get(leaf, ())
    beside = relative.parent / leaf
    if beside in places:
        return beside
    if len(places) != 1:
        found = " and ".join(map(str, places)) or "nowhere"
        raise FixError(f"depends on {name}, which is at {found} in the tree", where=str(relative))
    return places[0]


def _rpath(relative: PurePosixPath, provider: PurePosixPath) -> str:
    path = os.path.relpath(provider.parent, relative.parent)
    return "@loader_path" if path == "." else f"@loader_path/{path}"


def _leaves(root: Path, paths: Sequence[Path], files: Collection[Path]) -> dict[str, list[PurePosixPath]]:
    """Return where each file that the loader takes, or link to one, can be found by its last name."""
    leaves: dict[str, list[PurePosixPath]] = {}
    real = {os.path.realpath(path) for path in files}
    for path in paths:
        if path in files or (path.is_symlink() and os.path.realpath(path) in real):
            leaves.setdefault(path.name, []).append(PurePosixPath(path.relative_to(root).as_posix()))
    return leaves
