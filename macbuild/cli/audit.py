"""`macbuild audit`: check a file, folder, tarball or wheel against a policy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from macbuild.audit.model import AuditReport, AuditReports, Severity
from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import AuditError, MacbuildError
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
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Mach-O files, folders, .tar.gz or .whl files, folders of those two."),
    ],
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

    The rules cover architecture, minimum macOS, rpaths, dependencies, symbols and signatures, and the metadata of
    wheels. In a folder that has wheels and tarballs, each of them is audited for itself.
    """
    from macbuild.audit import artifacts_of, audit_path, audit_paths, load_policy

    policy = load_policy(session.settings.policy)
    found = list(dict.fromkeys(artifact for path in paths for artifact in artifacts_of(path)))
    report = (
        audit_path(found[0], policy, providers=provider or ())
        if found == paths[:1]
        else audit_paths(found, policy, providers=provider or ())
    )
    if json:
        session.print_json(report.to_json())
    elif isinstance(report, AuditReport):
        _print(session, report)
    else:
        _print_all(session, report)
    if not report.ok:
        raise _verdict(report, paths[0])


def _verdict(report: AuditReport | AuditReports, path: Path) -> MacbuildError:
    """Return the error that a rejection ends with; a path that could not be audited is worse than a rejected one."""
    if isinstance(report, AuditReport):
        errors = counted(report.count(Severity.ERROR), "error")
        return AuditError(f"the {report.policy} policy finds {errors}", where=path)
    if report.failed:
        return max((error for _, error in report.failed), key=lambda error: error.exit_code)
    rejected = sum(not each.ok for each in report.reports)
    return AuditError(f"the {report.policy} policy rejects {rejected} of {counted(len(report.reports), 'path')}")


def _print_all(session: Session, reports: AuditReports) -> None:
    for report in reports.reports:
        typer.echo(report.path)
        _print(session, report)
    for _, error in reports.failed:
        typer.echo(f"not audited: {error}")
    good = sum(report.ok for report in reports.reports)
    bad, failed = len(reports.reports) - good, len(reports.failed)
    typer.echo(f"{counted(good + bad + failed, 'path')}: {good} accepted, {bad} rejected, {failed} not audited")


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
