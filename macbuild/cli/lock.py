"""`macbuild lock`: pin sources, or check that recipes and lock agree."""

from __future__ import annotations

from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import LockError
from macbuild.events import counted

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "lock", ("recipes", "lock", "mirrors", "offline"))(_lock)


def _lock(
    session: Session,
    *,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if recipes and lock differ.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Download everything again and update the pins.")] = False,
) -> None:
    """Pin every source of the recipes by size and sha256."""
    from macbuild.recipe.lock import Lock, drift, load_lock, save_lock

    project = session.project
    if check:
        lines = drift(project.recipes, load_lock(project.lock_path))
        for line in lines:
            typer.echo(line)
        if lines:
            raise LockError(
                f"{counted(len(lines), 'difference')} from the recipes",
                where=project.lock_path,
                hint="run: macbuild lock",
            )
        session.say(f"{project.lock_path} and the recipes agree")
        return
    from macbuild.cli.progress import subscribe
    from macbuild.commands.lock import write_lock

    old = load_lock(project.lock_path) if project.lock_path.exists() else Lock()
    with subscribe(session) as emit:
        lock = write_lock(project, old, emit, update=update)
    save_lock(project.lock_path, lock)
    session.say(
        f"{project.lock_path}: {counted(len(lock.pinned), 'source')} pinned, {len(lock.unpinned)} not reachable"
    )
