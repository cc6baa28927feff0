"""Find the places of edits in a tree of sources, apply them all or none, and revert them."""

from __future__ import annotations

from macbuild.source.patch.apply import apply_edits, check_edits
from macbuild.source.patch.match import EditReport, EditState
from macbuild.source.patch.model import PLATFORMS, Edit, EditCheck, EditFile, edits_digest, load_edits
from macbuild.source.patch.record import RECORD, Record, revert_edits

__all__ = [
    "PLATFORMS",
    "RECORD",
    "Edit",
    "EditCheck",
    "EditFile",
    "EditReport",
    "EditState",
    "Record",
    "apply_edits",
    "check_edits",
    "edits_digest",
    "load_edits",
    "revert_edits",
]
