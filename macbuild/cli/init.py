"""`macbuild init`: make a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "init")(_init)


def _init(
    session: Session,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="The folder (default: the current one).")
    ] = None,
) -> None:
    """Make a project: a folder for your own recipes and settings.

    The recipes are added to those of macbuild. A recipe of yours replaces the one of macbuild that has its name.
    Nothing is overwritten.
    """
    from macbuild.commands.skeleton import make_project

    made = make_project(folder or Path())
    session.say(f"made {', '.join(map(str, made))}; next: macbuild recipes new NAME")
