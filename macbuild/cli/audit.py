"""`macbuild audit`: check a file, folder, tarball or wheel against a policy."""

from __future__ import annotations

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

    for finding in report.findings:
        if finding.severity is Severity.INFO and session.verbosity < 1:
            continue
        line = Text(f"{finding.severity.value}", style=_COLORS[finding.severity])
        place = f"{finding.file} ({finding.slice})" if finding.slice else finding.file
        line.append(f" {finding.rule}: {place}: {finding.message}", style="default")
        session.out.print(line, soft_wrap=True)
        session.out.print(f"    hint: {finding.hint}", soft_wrap=True, markup=False)
    for entry in report.exempted:
        found = entry.finding
        session.out.print(f"exempt {found.rule}: {found.file}: {entry.reason}", soft_wrap=True, markup=False)
    counts = ", ".join(counted(report.count(severity), noun) for severity, noun in _NOUNS.items())
    macos = report.minimum_macos or "unknown"
    files = counted(report.files, "Mach-O file")
    session.out.print(f"{files} ({', '.join(report.archs)}), minimum macOS {macos}: {counts}")
