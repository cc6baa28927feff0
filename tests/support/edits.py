"""Edits and trees for the tests of the patch engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from macbuild.source.patch.apply import apply_edits
from macbuild.source.patch.model import EditFile

__all__ = ["CHECKED", "Plain", "applied", "edit", "files", "tree"]

CHECKED = [{"version": "r1", "file": "own text", "date": "2026-11-21", "how": "read"}]
Plain = dict[str, Any]


def edit(**keys: object) -> Plain:
    return {"name": "one", "file": "a.cc", "action": "replace", "reason": "so", "checked": CHECKED, **keys}


def files(*edits: Plain) -> list[EditFile]:
    return [msgspec.convert({"schema": 1, "component": "demo", "edits": list(edits)}, EditFile)]


def tree(tmp_path: Path, **texts: str | bytes) -> Path:
    folder = tmp_path / "tree"
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def applied(tmp_path: Path, text: str | bytes, *edits: Plain, name: str = "a_cc") -> bytes:
    folder = tree(tmp_path, **{name: text})
    apply_edits(folder, files(*edits), "macos")
    return (folder / name.replace("_", ".")).read_bytes()
