"""The assemble step: the stage of one package, with the rpaths that lead from there to what it leans on."""

from __future__ import annotations

from collections.abc import Sequence
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
        Stages of other components, and what to take of them; these files are hard-linked, not touched.
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
    for path in files_below(fixed):
        target = output / package.prefix / path.relative_to(fixed)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or not package.rpaths or not is_loadable(path):
            link_or_copy(path, target)
        else:
            copy_file(path, target)
            edit_private(target, Edits(rpaths=tuple(package.rpaths)))
    for stage, rules in includes:
        add_files(stage, output, rules)
    add_files(recipe, output, package.files, put=copy_file)
