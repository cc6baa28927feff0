"""Audit: everything about an artifact that can be proved without a Mac, by rules that policies weigh."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from macbuild.audit.model import Exempted, Exemption, ExportRule, Finding, Report, Severity
    from macbuild.audit.policy import Policy, load_policy
    from macbuild.audit.run import audit_path, audit_tree

__all__ = [
    "Exempted",
    "Exemption",
    "ExportRule",
    "Finding",
    "Policy",
    "Report",
    "Severity",
    "audit_path",
    "audit_tree",
    "load_policy",
]

_PLACES = {"Policy": "policy", "audit_path": "run", "audit_tree": "run", "load_policy": "policy"}


def __getattr__(name: str) -> object:
    """Import what is asked for: recipes need the words of `model` alone, and a run with nothing to do only these."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'model')}"), name)
