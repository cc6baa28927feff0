"""The install step: choose files of an unpacked source and arrange them into a stage."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from macbuild.errors import RecipeError
from macbuild.files import copy_file, os_errors
from macbuild.recipe import Include, Install, Link

__all__ = ["add_files", "files_below", "install", "link_or_copy", "matching", "mirror"]


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
    add_files(source, stage, rules)
    for link in links:
        target = _new_place(stage, link.path, "links")
        with os_errors(target):
            target.symlink_to(link.target)
    _check_links(stage)


def add_files(
    source: Path, stage: Path, rules: Sequence[Install | Include], put: Callable[[Path, Path], None] = link_or_copy
) -> None:
    """Add to a stage what rules take from a folder; errors as for `install`.

    `put` is `copy_file` for a folder outside of the store, whose files may be changed in place.
    """
    for rule in rules:
        found = list(_matches(source, rule))
        if not found:
            raise RecipeError(f"{rule.source!r} matches nothing in the source", hint="the vendor's layout has changed")
        for path, place in found:
            put(path, _new_place(stage, place, rule.source))


def mirror(source: Path, folder: Path) -> None:
    """Make a folder the same as a stage. Files that are the same already keep their times, others are new."""
    wanted = {path.relative_to(source) for path in files_below(source)}
    with os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in list(files_below(folder)):
            if path.relative_to(folder) not in wanted:
                path.unlink()
        for place, _, _ in os.walk(folder, topdown=False):
            if place != str(folder) and not os.listdir(place):  # noqa: PTH208 - only whether there is anything
                os.rmdir(place)  # noqa: PTH106 - a text
        for name in wanted:
            path, target = source / name, folder / name
            if path.is_symlink() or target.is_symlink() or not _same(path, target):
                target.unlink(missing_ok=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_symlink():
                    target.symlink_to(path.readlink())
                else:
                    shutil.copyfile(path, target)
                    target.chmod(stat.S_IMODE(path.stat().st_mode))


def _same(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_mode == other.stat().st_mode and path.read_bytes() == other.read_bytes()
    except OSError:
        return False


def files_below(root: Path) -> Iterator[Path]:
    """Yield all files and symbolic links below a folder, in the same order on every machine."""
    for folder, names, files in os.walk(root):
        names.sort()
        linked = [name for name in names if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in sorted([*files, *linked]))


def _new_place(stage: Path, place: str, where: str) -> Path:
    """Return the path in the stage where nothing is yet, with its folders."""
    target = stage / _inside(place)
    for folder in reversed(target.relative_to(stage).parents[:-1]):
        if os.path.lexists(stage / folder) and ((stage / folder).is_symlink() or not (stage / folder).is_dir()):
            raise RecipeError(f"{place} would lie in {folder}, which is no folder", where=where)
    if os.path.lexists(target):
        raise RecipeError(f"{place} is installed twice", where=where)
    with os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _check_links(stage: Path) -> None:
    """Refuse a link that leads out of the stage, or to nothing: its target may have been left where it came from."""
    root = os.path.realpath(stage)
    for path in files_below(stage):
        if path.is_symlink():
            target = os.fspath(path.readlink())
            inside = os.path.realpath(path).startswith(root + os.sep) and not target.startswith("/")
            if not inside or not path.exists():
                why = "is not there" if inside else "is not inside the stage"
                name = path.relative_to(stage).as_posix()
                raise RecipeError(f"the link {name} points to {target}, which {why}", where="links")


def _matches(source: Path, rule: Install | Include) -> Iterator[tuple[Path, str]]:
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


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return what a recipe's pattern matches below a folder, sorted; a `RecipeError` if it is none."""
    try:
        return sorted(folder.glob(pattern))
    except (ValueError, NotImplementedError) as error:  # pathlib raises the second for an absolute pattern
        raise RecipeError(f"{pattern!r} is not a pattern: {error}", where=folder) from error


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
