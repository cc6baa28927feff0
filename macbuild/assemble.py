"""The assemble step: the stage of one package, with the rpaths that lead from there to what it leans on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from macbuild.files import copy_file
from macbuild.macho.edit import Edits, edit_private
from macbuild.recipe import Include, Package
from macbuild.repair import is_loadable
from macbuild.stage import add_files, files_below, link_or_copy

__all__ = ["assemble"]


def assemble(
    fixed: Path, package: Package, includes: Sequence[tuple[Path, Sequence[Include]]], recipe: Path, output: Path
) -> None:
    """Arrange a package: the component's own files, and what the package carries of others.

    Parameters
    ----------
    fixed
        The component's fixed stage; it is not changed. Its Mach-O files get the rpaths of the package, which keeps
        their signatures valid.
    package
        What to make.
    includes
        Fixed stages of needed components, and what to take of them.
    recipe
        The recipe's folder, for files that the package carries of it.
    output
        A folder that does not exist yet.

    Raises
    ------
    RecipeError
        If a rule matches nothing, or two rules give the same file.
    MachOError, HeaderRoomError
        If a file has no room for an rpath.
    """
    output.mkdir()
    own = _Place(package.rpaths)
    for path in files_below(fixed):
        target = output / package.prefix / path.relative_to(fixed)
        target.parent.mkdir(parents=True, exist_ok=True)
        own.put(path, target)
    for stage, rules in includes:
        for rule in rules:
            add_files(stage, output, [rule], put=_Place(rule.rpaths).put)
    add_files(recipe, output, package.files, put=copy_file)


@dataclass(frozen=True)
class _Place:
    """Gives files a place; Mach-O files get rpaths there, if there are any."""

    rpaths: Sequence[str]

    def put(self, path: Path, target: Path) -> None:
        if path.is_symlink() or not self.rpaths or not is_loadable(path):
            link_or_copy(path, target)
        else:
            copy_file(path, target)
            edit_private(target, Edits(rpaths=tuple(self.rpaths)))
