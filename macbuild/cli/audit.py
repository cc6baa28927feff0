"""`macbuild audit`: check a file, folder, tarball or wheel against a policy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from macbuild.audit.model import AuditReport, Severity
from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import AuditError
from macbuild.events import counted

__all__ = ["register"]

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_MARGIN = 10  # spaces before what follows the first line of a finding or a hint
_NOUNS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "remark"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "audit", ("policy",))(_audit)


def _audit(
    session: Session,
    path: Annotated[Path, typer.Argument(help="A Mach-O file, a folder, a .tar.gz or a .whl.")],
    *,
    provider: Annotated[
        list[Path] | None,
        typer.Option(
            "--provider",
            metavar="PATH",
            help="A dylib or .tbd that it is loaded with, or a folder of them. Repeatable.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the report as JSON.")] = False,
) -> None:
    """Check files, folders, tarballs or wheels against a policy.

    The rules cover architecture, minimum macOS, rpaths, dependencies, symbols and signatures.
    """
    from macbuild.audit import audit_path, load_policy

    report = audit_path(path, load_policy(session.settings.policy), providers=provider or ())
    if json:
        session.print_json(report.to_json())
    else:
        _print(session, report)
    if not report.ok:
        raise AuditError(
            f"the {report.policy} policy finds {counted(report.count(Severity.ERROR), 'error')}", where=path
        )


def _print(session: Session, report: AuditReport) -> None:
    from rich.text import Text

    from macbuild.cli.tables import fold_for

    def show(line: str, style: str = "") -> None:
        """Print a line that is folded for a terminal, its first word in a style."""
        text = Text(fold_for(sys.stdout, line, _MARGIN))
        text.stylize(style, 0, len(line.partition(" ")[0]))
        session.out.print(text, soft_wrap=True)

    for finding in report.findings:
        if finding.severity is Severity.INFO and session.verbosity < 1:
            continue
        place = f"{finding.file} ({finding.slice})" if finding.slice else finding.file
        line = f"{finding.severity.value} {finding.rule}: {place}: {finding.message}"
        show(line, _COLORS[finding.severity])
        show(f"    hint: {finding.hint}")
    for entry in report.exempted:
        found = entry.finding
        show(f"exempt {found.rule}: {found.file}: {entry.reason}")
    counts = ", ".join(counted(report.count(severity), noun) for severity, noun in _NOUNS.items())
    macos = report.minimum_macos or "unknown"
    files = counted(report.files, "Mach-O file")
    archs = f" ({', '.join(report.archs)})" if report.archs else ""
    show(f"{files}{archs}, minimum macOS {macos}: {counts}")
