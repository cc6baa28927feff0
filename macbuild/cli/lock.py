"""`macbuild lock`: pin sources, or check that recipes and lock agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from macbuild.cli.completion import complete_component
from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import LockError
from macbuild.events import counted

if TYPE_CHECKING:
    from macbuild.recipe.lock import Lock

__all__ = ["register"]

Components = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="Components (default: all that are in the project or its lock).",
        autocompletion=complete_component,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "lock", ("recipes", "lock", "mirrors", "offline"))(_lock)


def _lock(
    session: Session,
    names: Components = None,
    *,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if recipes and lock differ.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Download the sources again and update their pins.")] = False,
) -> None:
    """Pin the sources of the project's recipes by size and sha256.

    Pins that fit their recipe are kept, and the sources without one are downloaded. With names, only the pins of these
    components change; a component of macbuild gets pins of its own in the project's lock. A source that cannot be
    reached is listed as unpinned; if a component that was named has no other, the command fails.
    """
    if check:
        _check(session, names or [])
        return
    from macbuild.cli.progress import subscribe
    from macbuild.commands.lock import check_pinned, write_lock
    from macbuild.recipe.lock import save_lock

    project = session.project
    project.check_writable(project.lock_path)
    old = _old_lock(session, again=update and not names)
    with subscribe(session) as emit:
        lock = write_lock(project, old, emit, names=names or [], update=update)
    save_lock(project.lock_path, lock)
    session.say(
        f"{project.lock_path}: {counted(len(lock.pinned), 'source')} pinned, {len(lock.unpinned)} not reachable"
    )
    if names:
        check_pinned(project.locked_recipes(lock, names), lock)


def _old_lock(session: Session, *, again: bool) -> Lock:
    """Return the lock as it is; an empty one if there is none, or if it cannot be read and all is pinned `again`."""
    from macbuild.recipe.lock import Lock

    project = session.project
    if not project.lock_path.exists():
        return Lock()
    try:
        return project.own_lock
    except LockError as error:
        if not again:
            raise
        session.say(f"{error}; all sources are pinned again")
        return Lock()


def _check(session: Session, names: Sequence[str]) -> None:
    """Print the differences between recipes and lock; a `LockError` if there are some."""
    from macbuild.recipe.lock import Lock, drift

    project = session.project
    lock = project.own_lock
    if names:
        lock = Lock(
            pinned=[entry for entry in project.lock.pinned if entry.component in names],
            unpinned=[entry for entry in project.lock.unpinned if entry.component in names],
        )
    lines = drift(project.locked_recipes(lock, names), lock, project.recipes.folder)
    for line in lines:
        session.print_line(line)
    if lines:
        differences = f"{counted(len(lines), 'difference')} from the recipes"
        raise LockError(differences, where=project.lock_path, hint=f"run: {project.lock_command(*names)}")
    session.say(f"{project.lock_path} and the recipes agree")
