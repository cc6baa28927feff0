"""The classes of the audit: severity, finding, exemption, rule on exports, report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Any

from msgspec import Meta

from macbuild.data import Data
from macbuild.errors import MacbuildError

__all__ = ["AuditReport", "AuditReports", "Exempted", "Exemption", "ExportRule", "Finding", "Severity"]

REPORT_VERSION = 1

_Text = Annotated[str, Meta(min_length=1)]


class Severity(str, Enum):
    """The weight of a finding: only an error makes a report fail."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Exemption(Data, frozen=True):
    """A finding that is accepted."""

    rule: Annotated[_Text, Meta(description="the rule that found it")]
    file: Annotated[_Text, Meta(description="glob on the path in the tree, in which `*` crosses folders")]
    reason: Annotated[_Text, Meta(description="why it is accepted; the report and the manifest state it")]


class ExportRule(Data, frozen=True):
    """The exports of a file, as globs on names with their leading underscore."""

    allow: Annotated[list[_Text], Meta(description="if there is one, every export must match one of these")] = []
    forbid: Annotated[list[_Text], Meta(description="no export may match one of these")] = []
    require: Annotated[list[_Text], Meta(description="each of these must match an export")] = []


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule. `file` is a POSIX path relative to the tree, `slice` an architecture."""

    rule: str
    severity: Severity
    file: str
    slice: str | None
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Exempted:
    """A finding that an exemption accepts, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    `files` counts the Mach-O files; `minimum_macos` is the maximum over all their slices, None if no slice names one.
    """

    path: str
    policy: str
    findings: tuple[Finding, ...]
    exempted: tuple[Exempted, ...]
    files: int
    minimum_macos: str | None
    archs: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, which `report.schema.json` describes."""
        return {
            "version": REPORT_VERSION,
            "path": self.path,
            "policy": self.policy,
            "ok": self.ok,
            "files": self.files,
            "minimum_macos": self.minimum_macos,
            "archs": list(self.archs),
            "summary": {severity.value: self.count(severity) for severity in Severity},
            "findings": [_plain(finding) for finding in self.findings],
            "exempted": [{**_plain(entry.finding), "reason": entry.reason} for entry in self.exempted],
        }


@dataclass(frozen=True, slots=True)
class AuditReports:
    """The results of the audit of several paths. `failed` has those that could not be audited, and why."""

    policy: str
    reports: tuple[AuditReport, ...]
    failed: tuple[tuple[str, MacbuildError], ...]

    @property
    def ok(self) -> bool:
        """True if every path was audited and has no error."""
        return not self.failed and all(report.ok for report in self.reports)

    def to_json(self) -> dict[str, Any]:
        """Return the reports as plain data, which `report.schema.json` describes."""
        failed = [
            {"path": path, "error": type(error).__name__, "message": error.message, "hint": error.hint}
            for path, error in self.failed
        ]
        return {
            "version": REPORT_VERSION,
            "policy": self.policy,
            "ok": self.ok,
            "reports": [report.to_json() for report in self.reports],
            "failed": failed,
        }


def _plain(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "severity": finding.severity.value}
