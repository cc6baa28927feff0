"""The page that `--report FILE.html` writes: what was made, what is in it, what the audit said, how the time went."""

from __future__ import annotations

from macbuild.report.page import write_report

__all__ = ["write_report"]
