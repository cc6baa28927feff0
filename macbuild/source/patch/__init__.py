"""Find the places of edits in a tree of sources, apply them all or none, and revert them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_PLACES = {
    "EditReport": "match",
    "EditState": "match",
    "RECORD": "record",
    "Record": "record",
    "apply_edits": "apply",
    "check_edits": "apply",
    "revert_edits": "record",
}


def __getattr__(name: str) -> object:
    """Import on demand: a plan needs only the digest of edits, which is in `model`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'model')}"), name)
