"""`macbuild cache`: show where the store is and what is in it, and make it smaller."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.cli.tables import aligned, grouped, terminal_width
from macbuild.events import counted
from macbuild.units import size

__all__ = ["app"]

app = typer.Typer(help="List the results in the store, or remove them.", no_args_is_help=True)


def _dir(session: Session) -> None:
    """Print the folder of the store."""
    typer.echo(session.project.store.root)


def _list(session: Session, *, json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False) -> None:
    """List results, least recently used first."""
    entries = session.project.store.entries()
    if json:
        facts = [
            {"key": entry.key, "step": entry.step, "size": entry.size, "used": entry.used, "path": str(entry.path)}
            for entry in entries
        ]
        session.print_json({"version": 1, "results": facts})
        return
    used = [f"{dt.datetime.fromtimestamp(entry.used, tz=dt.timezone.utc):%Y-%m-%d %H:%M}" for entry in entries]
    rows = [(entry.key[:12], time, size(entry.size)) for entry, time in zip(entries, used, strict=True)]
    steps = [entry.step for entry in entries]
    lines = aligned([(*row, step) for row, step in zip(rows, steps, strict=True)], right=[2])
    if max(map(len, lines), default=0) > terminal_width():
        lines = grouped(steps, rows, right=[2])
    for line in lines:
        typer.echo(line)
    session.say(f"{counted(len(entries), 'result')}, {size(sum(entry.size for entry in entries))}")


def _prune(
    session: Session,
    *,
    days: Annotated[
        float, typer.Option("--days", metavar="DAYS", min=0, help="Remove what was not used for this many days.")
    ] = 30,
) -> None:
    """Remove results that were not used lately.

    The leftovers of killed runs are removed, too.
    """
    store = session.project.store
    store.prepare()
    with store.in_use(alone=True):
        gone = store.prune(days)
    session.say(f"removed {counted(len(gone), 'result')}, {size(sum(entry.size for entry in gone))}")


def _clean(session: Session) -> None:
    """Remove the whole store."""
    store = session.project.store
    if not store.root.exists():
        session.say(f"{store.root} does not exist")
        return
    with store.in_use(alone=True):
        results = len(store.entries())
        removed = store.clean()
    session.say(f"removed {counted(results, 'result')} and everything else of the store, {size(removed)}")
    if store.root.is_symlink():
        session.say(f"{store.root} stays: it is a link")
    elif store.root.exists():
        names = ", ".join(sorted(path.name for path in store.root.iterdir())[:5])
        session.say(f"{store.root} stays, with what macbuild did not put there: {names}")
    else:
        session.say(f"removed {store.root}")


command(app, "dir")(_dir)
command(app, "list")(_list)
command(app, "prune")(_prune)
command(app, "clean")(_clean)
