"""`macbuild audit`: check a file, folder, tarball or wheel against a policy."""

from __future__ import annotations

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
