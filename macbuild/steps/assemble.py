"""The assemble step: the stage of one package, with the rpaths that lead from there to its dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from macbuild.files import copy_file, files_below, link_or_copy
from macbuild.macho.edit import Edits, edit_open
from macbuild.macho.file import read_loadable
from macbuild.macho.private import open_private
from macbuild.recipe.model import Include, Package
from macbuild.steps.layout import add_files

__all__ = ["assemble"]


def assemble(
    fixed: Path, package: Package, includes: Sequence[tuple[Path, Sequence[Include]]], recipe: Path, output: Path
) -> None:
    """Arrange a package: the component's own files, and what the package carries of other components.

    Parameters
    ----------
    fixed
        The component's fixed stage; it is not changed. Its Mach-O files get the rpaths of the package, which keeps
        their signatures valid.
    package
        The package to make.
    includes
        Stages of other components, and the files to take from them; these files are hard-linked, not changed.
    recipe
        The recipe's folder, for files that the package takes from it.
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
    for path in files_below(fixed):
        target = output / package.prefix / path.relative_to(fixed)
        target.parent.mkdir(parents=True, exist_ok=True)
        file = read_loadable(path) if package.rpaths and not path.is_symlink() else None
        if file is None:
            link_or_copy(path, target)
            continue
        copy_file(path, target)
        with open_private(target, file.at(target)) as private:
            edit_open(private, Edits(rpaths=tuple(package.rpaths)))
    for stage, rules in includes:
        add_files(stage, output, rules)
    add_files(recipe, output, package.files, put=copy_file)
