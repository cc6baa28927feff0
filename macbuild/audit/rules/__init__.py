"""The rules: pure functions from the facts of a tree to findings."""

from __future__ import annotations

from macbuild.audit.context import Check
from macbuild.audit.rules import dependencies, files, headers, runtimes, symbols, wheels

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = (
    *files.CHECKS,
    *wheels.CHECKS,
    *headers.CHECKS,
    *dependencies.CHECKS,
    *symbols.CHECKS,
    *runtimes.CHECKS,
)
