"""The merge step: one universal stage from the fixed stages of two architectures."""

from __future__ import annotations

import filecmp
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from macbuild.errors import RepairError
from macbuild.macho.fat import merge as merge_files
from macbuild.macho.sign import sign_private
from macbuild.recipe import Prefer
from macbuild.repair import is_loadable
from macbuild.stage import files_below, link_or_copy

__all__ = ["merge_stages"]

_HEADERS = {".h", ".hpp", ".hh"}
_MACROS = {"x86_64": "__x86_64__", "arm64": "__arm64__"}


def merge_stages(stages: Mapping[str, Path], output: Path, prefer: Sequence[Prefer]) -> None:
    """Merge stages by architecture: Mach-O files into universal ones, the same files as they are.

    A header that differs becomes one that includes the right one of both. Any other file that differs needs a rule.

    Parameters
    ----------
    stages
        The stages by architecture; they are not changed.
    output
        A folder that does not exist yet.
    prefer
        For files that differ, which architecture's to take, from the recipe.

    Raises
    ------
    RepairError
        If a file differs and no rule says which to take.
    """
    output.mkdir()
    found: dict[PurePosixPath, dict[str, Path]] = {}
    for arch, stage in stages.items():
        for path in files_below(stage):
            found.setdefault(PurePosixPath(path.relative_to(stage).as_posix()), {})[arch] = path
    for relative, versions in sorted(found.items()):
        if any(folder in found for folder in relative.parents):
            raise RepairError("lies in a folder of one architecture that is a file of the other", where=str(relative))
        target = output / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        paths = list(versions.values())
        if len(paths) == 1 or _same(paths):
            link_or_copy(paths[0], target)
        elif all(is_loadable(path) and not path.is_symlink() for path in paths):
            merge_files(paths, target)
            sign_private(target)
        else:
            _choose(relative, versions, target, prefer, found)


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
        hint = "add a [[merge.prefer]] to the recipe that says which to take, with the reason"
        raise RepairError(f"differs between {archs}", where=str(relative), hint=hint)


def _switch_header(
    relative: PurePosixPath, versions: Mapping[str, Path], target: Path, taken: Collection[PurePosixPath]
) -> None:
    lines = ["#pragma once", ""]
    for index, (arch, path) in enumerate(sorted(versions.items())):
        name = f"{relative.stem}.{arch}{relative.suffix}"
        if relative.with_name(name) in taken:
            raise RepairError(f"differs, and {name} is there already", where=str(relative))
        link_or_copy(path, target.with_name(name))
        lines += [f"#{'elif' if index else 'if'} defined({_MACROS[arch]})", f'#include "{name}"']
    lines += ["#else", f'#error "{relative.name}: built for {" and ".join(sorted(versions))}"', "#endif", ""]
    target.write_text("\n".join(lines), "utf-8")


def _same(paths: Sequence[Path]) -> bool:
    first, *others = paths
    if any(path.is_symlink() for path in paths):
        return all(path.is_symlink() and path.readlink() == first.readlink() for path in others) and first.is_symlink()
    return all(filecmp.cmp(first, path, shallow=False) for path in others)
