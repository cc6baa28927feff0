"""The install step: choose files of an unpacked source and arrange them into a stage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from macbuild.errors import RecipeError
from macbuild.files import copy_file, os_errors
from macbuild.recipe import Install, Link

__all__ = ["files_below", "install", "link_or_copy"]


def install(source: Path, stage: Path, rules: Sequence[Install], links: Sequence[Link]) -> None:
    """Fill a stage from an unpacked source.

    Parameters
    ----------
    source
        The unpacked tree. It is not changed: files are hard-linked, since nobody edits a file of the store in place.
    stage
        A folder that does not exist yet.
    rules, links
        What to take, and the symbolic links to make, from the recipe.

    Raises
    ------
    RecipeError
        If a rule matches nothing, two rules give the same file, or a path leaves the stage.
    """
    stage.mkdir()
    for rule in rules:
        found = list(_matches(source, rule))
        if not found:
            raise RecipeError(f"{rule.source!r} matches nothing in the source", hint="the vendor's layout has changed")
        for path, place in found:
            target = stage / _inside(place)
            if target.exists():
                raise RecipeError(f"{place} is installed twice", where=rule.source)
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, target)
    for link in links:
        target = stage / _inside(link.path)
        if not (target.parent / link.target).exists():
            raise RecipeError(f"the link {link.path} points to {link.target}, which is not there", where="links")
        with os_errors(target):
            target.symlink_to(link.target)


def files_below(root: Path) -> Iterator[Path]:
    """Yield all files and symbolic links below a folder, in the same order on every machine."""
    for folder, names, files in os.walk(root):
        names.sort()
        linked = [name for name in names if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in sorted([*files, *linked]))


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file of the store a second name, or copy it where the file system cannot; links are copied as links."""
    with os_errors(target):
        if source.is_symlink():
            target.symlink_to(source.readlink())
            return
        try:
            os.link(source, target)
        except OSError:
            copy_file(source, target)


def _matches(source: Path, rule: Install) -> Iterator[tuple[Path, str]]:
    """Yield the files that a rule takes, each with its path in the stage."""
    fixed = _fixed_part(rule.source)
    for path in sorted(source.glob(rule.source)):
        if path.is_dir() and not path.is_symlink():
            continue
        relative = path.relative_to(source / fixed).as_posix()
        if any(fnmatchcase(relative, pattern) for pattern in rule.exclude):
            continue
        yield path, rule.to + relative if rule.to.endswith("/") or not rule.to else rule.to


def _fixed_part(pattern: str) -> PurePosixPath:
    """Return the folders before the first part with a wildcard, or those of a plain file."""
    parts = PurePosixPath(pattern).parts
    wild = next((index for index, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)
    return PurePosixPath(*parts[:wild])


def _inside(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise RecipeError(f"{path!r} does not stay inside the stage")
    return pure
