"""The layout step: choose files of an unpacked source and arrange them into a stage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from macbuild.errors import RecipeError
from macbuild.files import files_below, link_or_copy, os_errors
from macbuild.recipe.inputs import matching
from macbuild.recipe.model import Include, LayoutRule, Link

__all__ = ["add_files", "lay_out"]


def lay_out(source: Path, stage: Path, rules: Sequence[LayoutRule], links: Sequence[Link]) -> None:
    """Fill a stage from an unpacked source.

    Parameters
    ----------
    source
        The unpacked tree. It is not changed: files are hard-linked, since files of the store are never edited in place.
    stage
        A folder that does not exist yet.
    rules, links
        The files to take and the symbolic links to make, from the recipe.

    Raises
    ------
    RecipeError
        If a rule matches nothing, two rules give the same file, or a path leaves the stage.
    """
    stage.mkdir()
    add_files(source, stage, rules)
    for link in links:
        target = _new_place(stage, link.path, "links")
        with os_errors(target):
            target.symlink_to(link.target)
    _check_links(stage)


def add_files(
    source: Path, stage: Path, rules: Sequence[LayoutRule | Include], put: Callable[[Path, Path], None] = link_or_copy
) -> None:
    """Add the files that rules take from a folder to a stage; errors as for `lay_out`.

    `put` is `copy_file` for a folder outside the store, whose files may be changed in place.
    """
    for rule in rules:
        found = list(_matches(source, rule))
        if not found:
            raise RecipeError(f"{rule.source!r} matches nothing in the source", hint="the vendor's layout has changed")
        for path, place in found:
            put(path, _new_place(stage, place, rule.source))


def _new_place(stage: Path, place: str, where: str) -> Path:
    """Return a path in the stage that is not taken, and make its folders."""
    target = stage / _inside(place)
    for folder in reversed(target.relative_to(stage).parents[:-1]):
        if os.path.lexists(stage / folder) and ((stage / folder).is_symlink() or not (stage / folder).is_dir()):
            raise RecipeError(f"{place} would be in {folder}, which is not a folder", where=where)
    if os.path.lexists(target):
        raise RecipeError(f"{place} is installed twice", where=where)
    with os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _check_links(stage: Path) -> None:
    """Refuse a link that leads out of the stage or to nothing: a rule may not have taken its target."""
    root = os.path.realpath(stage)
    for path in files_below(stage):
        if path.is_symlink():
            target = os.fspath(path.readlink())
            inside = os.path.realpath(path).startswith(root + os.sep) and not target.startswith("/")
            if not inside or not path.exists():
                why = "does not exist" if inside else "is not inside the stage"
                name = path.relative_to(stage).as_posix()
                raise RecipeError(f"the link {name} points to {target}, which {why}", where="links")


def _matches(source: Path, rule: LayoutRule | Include) -> Iterator[tuple[Path, str]]:
    """Yield the files that a rule takes, each with its path in the stage."""
    fixed = _fixed_part(rule.source)
    _inside(rule.source)
    for path in matching(source, rule.source):
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
        raise RecipeError(f"{path!r} is absolute, empty or goes upwards")
    return pure
