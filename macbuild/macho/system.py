"""Tell which paths belong to macOS itself."""

from __future__ import annotations

__all__ = ["is_system"]

_SYSTEM_FOLDERS = ("/usr/lib/", "/System/Library/")
"""Folders of the libraries of macOS; System Integrity Protection keeps everything else out of them."""


def is_system(name: str) -> bool:
    """Tell whether a dependency is part of macOS; a path with `..` can lead anywhere, so it is not."""
    return name.startswith(_SYSTEM_FOLDERS) and ".." not in name.split("/")
