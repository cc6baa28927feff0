"""Write the page of `--report FILE.html`: the artifacts, their content, the audit's findings, and the time spent."""

from __future__ import annotations

from macbuild.cli.report.page import write_report

__all__ = ["write_report"]
