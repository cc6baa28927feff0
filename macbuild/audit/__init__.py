"""Audit: prove everything about an artifact that can be proved without a Mac, by rules whose severity policies set."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from macbuild.audit.model import AuditReport, AuditReports, Exempted, Exemption, ExportRule, Finding, Severity
    from macbuild.audit.policy import Policy, load_policy
    from macbuild.audit.run import artifacts_of, audit_path, audit_paths, audit_tree

__all__ = [
    "AuditReport",
    "AuditReports",
    "Exempted",
    "Exemption",
    "ExportRule",
    "Finding",
    "Policy",
    "Severity",
    "artifacts_of",
    "audit_path",
    "audit_paths",
    "audit_tree",
    "load_policy",
]

_PLACES = {
    "Policy": "policy",
    "artifacts_of": "run",
    "audit_path": "run",
    "audit_paths": "run",
    "audit_tree": "run",
    "load_policy": "policy",
}


def __getattr__(name: str) -> object:
    """Import on demand: recipes, and a run with nothing to do, need only the classes of `model`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'model')}"), name)
