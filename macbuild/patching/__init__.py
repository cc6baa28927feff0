"""Edits as data: find their places in a tree of sources, apply them all or none, and take them back."""

from __future__ import annotations

from macbuild.patching.apply import apply_edits, check_edits
from macbuild.patching.match import Report, State
from macbuild.patching.model import PLATFORMS, Check, Edit, EditFile, edits_digest, load_edits
from macbuild.patching.record import RECORD, Record, revert_edits

__all__ = [
    "PLATFORMS",
    "RECORD",
    "Check",
    "Edit",
    "EditFile",
    "Record",
    "Report",
    "State",
    "apply_edits",
    "check_edits",
    "edits_digest",
    "load_edits",
    "revert_edits",
]
