"""`macbuild cache`: show where the store is and what is in it, and make it smaller."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.events import counted

__all__ = ["app"]

app = typer.Typer(help="List the results in the store, or remove them.", no_args_is_help=True)


def _dir(session: Session) -> None:
    """Print the folder of the store."""
    typer.echo(session.project.store.root)


def _list(session: Session, *, json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False) -> None:
    """List results, least recently used first."""
    entries = session.project.store.entries()
    if json:
        rows = [
            {"key": entry.key, "step": entry.step, "size": entry.size, "used": entry.used, "path": str(entry.path)}
            for entry in entries
        ]
        session.print_json({"version": 1, "results": rows})
        return
    for entry in entries:
        used = dt.datetime.fromtimestamp(entry.used, tz=dt.timezone.utc)
        typer.echo(f"{entry.key[:12]}  {used:%Y-%m-%d %H:%M}  {entry.size / 1e6:10.1f} MB  {entry.step}")
    session.say(f"{len(entries)} results, {sum(entry.size for entry in entries) / 1e6:.1f} MB")


def _prune(
    session: Session,
    *,
    days: Annotated[
        float, typer.Option("--days", metavar="DAYS", min=0, help="Remove what was not used for this many days.")
    ] = 30,
) -> None:
    """Remove results that were not used lately, and leftovers of killed runs."""
    store = session.project.store
    store.prepare()
    with store.in_use(alone=True):
        gone = store.prune(days)
    session.say(f"removed {counted(len(gone), 'result')}, {sum(entry.size for entry in gone) / 1e6:.1f} MB")


def _clean(session: Session) -> None:
    """Remove the whole store."""
    store = session.project.store
    if not store.root.exists():
        session.say(f"{store.root} does not exist")
        return
    with store.in_use(alone=True):
        results = len(store.entries())
        size = store.clean()
    session.say(f"removed {counted(results, 'result')} and everything else of the store, {size / 1e6:.1f} MB")
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
