"""Show the audit of each artifact: findings by severity, and those that an exemption accepts."""

from __future__ import annotations

from collections.abc import Sequence

from macbuild.audit.catalogue import RULES
from macbuild.cli.report.markup import Cell, Column, Html, clip, count, el, join, table
from macbuild.commands.publish import PublishedArtifact
from macbuild.package.manifest import ExemptedRecord, FindingRecord

__all__ = ["SEVERITIES", "findings"]

SEVERITIES = ("error", "warning", "info")
_MOST = 100  # Rows of a severity; the manifest has them all.
_LONGEST = 1200
_LONGEST_NAME = 300


def findings(made: PublishedArtifact) -> Html:
    """Return the section about the audit of an artifact."""
    audit = made.entry.audit
    verdict = el("span", "passes" if audit.ok else "fails", class_=f"key {'built' if audit.ok else 'failed'}")
    counts = [count(sum(row.severity == name for row in audit.findings), name) for name in ("error", "warning")]
    counts.append(count(sum(row.severity == "info" for row in audit.findings), "remark"))
    counts.append(f"{len(audit.exempted)} exempted")
    parts = [
        el("h3", made.entry.file),
        el("p", verdict, f" the {audit.policy} policy: {', '.join(counts)}."),
    ]
    if audit.findings:
        parts.append(_found(audit.findings))
    if audit.exempted:
        parts.append(_exempted(audit.exempted))
    return el("article", *parts, class_="card")


def _found(rows: Sequence[FindingRecord]) -> Html:
    names = [*SEVERITIES, *sorted({row.severity for row in rows} - set(SEVERITIES))]
    groups = []
    for name in names:
        found = [row for row in rows if row.severity == name]
        if found:
            hidden = len(found) - _MOST
            shown = f", the first {_MOST} of them; manifest.json has all" if hidden > 0 else ""
            title = el("span", count(len(found), _noun(name)) + shown, class_=f"key severity {_style(name)}")
            groups.append(
                (title, [_row(row, el("p", row.hint, class_="hint") if row.hint else "") for row in found[:_MOST]])
            )
    columns = [Column("Rule"), Column("File"), Column("Slice"), Column("What, and how to fix it", "note")]
    return el("div", table("Findings by severity", columns, groups), class_="stack findings")


def _exempted(rows: Sequence[ExemptedRecord]) -> Html:
    lines = [_row(row, el("p", f"Reason: {clip(row.reason, _LONGEST)}", class_="hint")) for row in rows[:_MOST]]
    hidden = f", the first {_MOST} of {len(rows):,}" if len(rows) > _MOST else ""
    columns = [Column("Rule"), Column("File"), Column("Slice"), Column("Problem, and why it is exempted", "note")]
    return el("div", table(f"Exempted{hidden}", columns, [("", lines)]), class_="stack findings")


def _row(row: FindingRecord, note: Html | str) -> list[str | Cell]:
    rule = el("span", row.rule, title=RULES.get(row.rule))
    return [
        rule,
        Cell(clip(row.file, _LONGEST_NAME), "path"),
        row.slice or "-",
        join([clip(row.message, _LONGEST), note]),
    ]


def _noun(severity: str) -> str:
    return {"info": "remark"}.get(severity, severity)


def _style(severity: str) -> str:
    return severity if severity in SEVERITIES else "info"
