"""The doctor command: what is there, what is needed, the command that mends it."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import ToolError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "doctor", ("recipes", "lock"))(_doctor)


def _doctor(session: Session, *, json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False) -> None:
    """Look whether this machine has what macbuild needs."""
    from macbuild.doctor import examine  # noqa: PLC0415 - other commands start without

    checks = list(examine(session.project))
    if json:
        session.print_json({"version": 1, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        for check in checks:
            mark = "ok" if check.ok else "MISSING" if check.needed else "absent"
            typer.echo(f"{mark:8} {check.name:8} {check.found}")
            if not check.ok and check.mend:
                typer.echo(f"{'':17} mend: {check.mend}")
    bad = [check.name for check in checks if check.needed and not check.ok]
    if bad:
        raise ToolError(f"missing: {', '.join(bad)}", hint="see the lines above")
