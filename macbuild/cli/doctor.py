"""`macbuild doctor`: check this machine, or check that the edits fit upstream."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import ToolError, UsageError

if TYPE_CHECKING:
    from macbuild.commands.check_edits import ComponentCheck

__all__ = ["register"]

_WORDS = {"applied": "needed", "already-applied": "applied", "not-needed": "no longer needed"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "doctor", ("recipes", "lock", "mirrors", "offline", "sources"))(_doctor)


def _doctor(
    session: Session,
    *,
    upstream: Annotated[bool, typer.Option("--upstream", help="Check that the edits fit upstream's files.")] = False,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="VERSION", help="Release of upstream (default: the newest)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Check that this machine has what macbuild needs.

    With --upstream, check that the edits fit upstream's sources. Only the files that the edits touch are fetched, and
    nothing is built. The exit code is 21 if an edit is ambiguous or missing, and 8 if a component's files are not
    available.
    """
    if upstream:
        _upstream(session, version, json=json)
        return
    if version is not None:
        raise UsageError("requires --upstream", where="--version")
    from macbuild.commands.doctor import check_machine

    checks = list(check_machine(session.project))
    if json:
        session.print_json({"version": 1, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        for check in checks:
            mark = "ok" if check.ok else "MISSING" if check.needed else "absent"
            session.print_line(f"{mark:8} {check.name:9} {check.found}", 19)
            if not check.ok and check.hint:
                session.print_line(f"{'':18} hint: {check.hint}", 25)
    bad = [check.name for check in checks if check.needed and not check.ok]
    if bad:
        raise ToolError(f"missing: {', '.join(bad)}", hint="see the lines above")


def _upstream(session: Session, version: str | None, *, json: bool) -> None:
    from macbuild.cli.progress import subscribe
    from macbuild.commands.check_edits import check_upstream, error_of

    with subscribe(session) as emit:
        checks = check_upstream(session.project, version, emit)
    if json:
        session.print_json({"version": 1, "components": [_facts(check) for check in checks]})
    else:
        for check in checks:
            _print(session, check)
    error = error_of(checks)
    if error is not None:
        raise error


def _facts(check: ComponentCheck) -> dict[str, object]:
    rows = [
        {
            "name": report.edit.name,
            "file": report.edit.file,
            "state": report.state,
            "message": report.message,
            "lines": list(report.lines),
            "near": list(report.near),
        }
        for report in check.reports
    ]
    facts = {"component": check.component, "version": check.version, "source": check.source, "pinned": check.pinned}
    return {**facts, "problem": str(check.problem) if check.problem else None, "edits": rows}


def _print(session: Session, check: ComponentCheck) -> None:
    session.print_line(f"{check.component} {check.version}: {check.source}{'' if check.pinned else ', not pinned'}")
    if check.problem:
        session.print_line(f"  not checked: {check.problem}", 4)
    for report in check.reports:
        state = _WORDS.get(report.state, report.state.upper())
        session.print_line(f"  {state:19} {report.edit.name} ({report.edit.file}): {report.message}", 22)
        for line in report.near:
            typer.echo(f"{'':22}similar: {line}")
