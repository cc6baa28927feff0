"""Audit: everything about an artifact that can be proved without a Mac, by rules that policies weigh."""

from __future__ import annotations

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
