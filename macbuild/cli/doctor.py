"""The doctor command: what is there, what is needed, the command that mends it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import ToolError, UsageError

if TYPE_CHECKING:
    from macbuild.upstream import Look

__all__ = ["register"]

_WORDS = {"applied": "needed", "already-applied": "applied", "not-needed": "not needed any more"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "doctor", ("recipes", "lock", "mirrors", "offline", "sources"))(_doctor)


def _doctor(
    session: Session,
    *,
    upstream: Annotated[bool, typer.Option("--upstream", help="Look whether our edits fit upstream's files.")] = False,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="VERSION", help="Which release of upstream (default: the newest)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Look whether this machine has what macbuild needs, or whether our edits fit upstream's sources.

    With --upstream only the files that the edits touch are fetched, and nothing is built. It ends with exit code 21 if
    an edit is ambiguous or missing, and with 8 if a component's files cannot be had.
    """
    if upstream:
        _upstream(session, version, json=json)
        return
    if version is not None:
        raise UsageError("goes with --upstream only", where="--version")
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


def _upstream(session: Session, version: str | None, *, json: bool) -> None:
    from macbuild.cli.progress import subscribe  # noqa: PLC0415 - other commands start without
    from macbuild.upstream import look_upstream, verdict  # noqa: PLC0415

    with subscribe(session) as emit:
        looks = look_upstream(session.project, version, emit)
    if json:
        session.print_json({"version": 1, "components": [_facts(look) for look in looks]})
    else:
        for look in looks:
            _print(look)
    error = verdict(looks)
    if error is not None:
        raise error


def _facts(look: Look) -> dict[str, object]:
    rows = [
        {
            "name": report.edit.name,
            "file": report.edit.file,
            "state": report.state,
            "message": report.message,
            "lines": list(report.lines),
            "near": list(report.near),
        }
        for report in look.reports
    ]
    facts = {"component": look.component, "version": look.version, "source": look.source, "pinned": look.pinned}
    return {**facts, "problem": str(look.problem) if look.problem else None, "edits": rows}


def _print(look: Look) -> None:
    typer.echo(f"{look.component} {look.version}: {look.source}{'' if look.pinned else ', not pinned'}")
    if look.problem:
        typer.echo(f"  cannot be looked at: {look.problem}")
    for report in look.reports:
        state = _WORDS.get(report.state, report.state.upper())
        typer.echo(f"  {state:19} {report.edit.name} ({report.edit.file}): {report.message}")
        for line in report.near:
            typer.echo(f"{'':22}like it: {line}")
