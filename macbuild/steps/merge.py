"""The merge step: one universal stage from the fixed stages of two architectures."""

from __future__ import annotations

import filecmp
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from macbuild.errors import FixError
from macbuild.files import files_below, link_or_copy
from macbuild.macho.fat import write_universal
from macbuild.macho.file import ParsedFile, read_loadable
from macbuild.macho.private import open_private
from macbuild.recipe.model import Prefer

__all__ = ["merge_stages"]

_HEADERS = {".h", ".hpp", ".hh"}
_MACROS = {"x86_64": "__x86_64__", "arm64": "__arm64__"}


def merge_stages(stages: Mapping[str, Path], output: Path, prefer: Sequence[Prefer]) -> None:
    """Merge stages by architecture: make Mach-O files universal and keep equal files.

    A header that differs becomes one that includes the right one of the two. Any other file that differs needs a rule.

    Parameters
    ----------
    stages
        The stages by architecture; they are not changed.
    output
        A folder that does not exist yet.
    prefer
        The architecture whose file to take, for files that differ, from the recipe.

    Raises
    ------
    FixError
        If a file differs and no rule chooses one.
    """
    output.mkdir()
    found: dict[PurePosixPath, dict[str, Path]] = {}
    for arch, stage in stages.items():
        for path in files_below(stage):
            found.setdefault(PurePosixPath(path.relative_to(stage).as_posix()), {})[arch] = path
    for relative, versions in sorted(found.items()):
        if any(folder in found for folder in relative.parents):
            raise FixError("is in a folder of one architecture that is a file of the other", where=str(relative))
        target = output / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        paths = list(versions.values())
        if len(paths) == 1 or _same(paths):
            link_or_copy(paths[0], target)
        elif files := _loadable(paths):
            with open_private(target, write_universal(files, target)) as private:
                private.sign()
        else:
            _choose(relative, versions, target, prefer, found)


def _loadable(paths: Sequence[Path]) -> list[ParsedFile]:
    """Return the parsed files, none if there is one that the loader does not take."""
    files = [None if path.is_symlink() else read_loadable(path) for path in paths]
    loadable = [file for file in files if file is not None]
    return loadable if len(loadable) == len(paths) else []


def _choose(
    relative: PurePosixPath,
    versions: Mapping[str, Path],
    target: Path,
    prefer: Sequence[Prefer],
    taken: Collection[PurePosixPath],
) -> None:
    rule = next((rule for rule in prefer if fnmatchcase(str(relative), rule.file)), None)
    if rule is not None:
        link_or_copy(versions[rule.arch], target)
    elif relative.suffix in _HEADERS:
        _switch_header(relative, versions, target, taken)
    else:
        archs = " and ".join(versions)
        hint = "add a [[merge.prefer]] to the recipe that chooses one, with the reason"
        raise FixError(f"differs between {archs}", where=str(relative), hint=hint)


def _switch_header(
    relative: PurePosixPath, versions: Mapping[str, Path], target: Path, taken: Collection[PurePosixPath]
) -> None:
    lines = ["#pragma once", ""]
    for index, (arch, path) in enumerate(sorted(versions.items())):
        name = f"{relative.stem}.{arch}{relative.suffix}"
        if relative.with_name(name) in taken:
            raise FixError(f"differs, and {name} exists already", where=str(relative))
        link_or_copy(path, target.with_name(name))
        lines += [f"#{'elif' if index else 'if'} defined({_MACROS[arch]})", f'#include "{name}"']
    lines += ["#else", f'#error "{relative.name}: built for {" and ".join(sorted(versions))}"', "#endif", ""]
    target.write_text("\n".join(lines), "utf-8")


def _same(paths: Sequence[Path]) -> bool:
    first, *others = paths
    if any(path.is_symlink() for path in paths):
        return all(path.is_symlink() and path.readlink() == first.readlink() for path in others) and first.is_symlink()
    return all(filecmp.cmp(first, path, shallow=False) for path in others)
