"""The words of the audit: severity, finding, exemption, rule on exports, report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Any

import msgspec

from macbuild.data import Data

__all__ = ["Exempted", "Exemption", "ExportRule", "Finding", "Report", "Severity"]

REPORT_VERSION = 1

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Severity(str, Enum):
    """How much a finding counts: only an error makes a report fail."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Exemption(Data, frozen=True):
    """A finding that is accepted. `file` is a glob on the path in the tree, in which `*` crosses folders."""

    rule: _Text
    file: _Text
    reason: _Text


class ExportRule(Data, frozen=True):
    """What a component may export, as globs on names with their leading underscore.

    Every export must match `allow` if there is one, none may match `forbid`, and each glob of `require` must match
    something.
    """

    allow: list[_Text] = []
    forbid: list[_Text] = []
    require: list[_Text] = []


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a rule found. `file` is a POSIX path relative to the tree, `slice` an architecture."""

    rule: str
    severity: Severity
    file: str
    slice: str | None
    message: str
    mend: str


@dataclass(frozen=True, slots=True)
class Exempted:
    """A finding that an exemption accepts, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit found.

    `files` counts the Mach-O files; `minimum_macos` is the maximum over all their slices, None where no slice tells.
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
        """Whether there is no error."""
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


def _plain(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "severity": finding.severity.value}
