"""Progress as a callback: bytes done and total; it is also the way to cancel, because what it raises ends the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["BEAT", "Progress", "silent", "throttled"]

BEAT = 0.1  # seconds between two calls

Progress: TypeAlias = Callable[[int, int | None], None]


def silent(done: int, total: int | None) -> None:
    """Take progress and do nothing."""
    del done, total


def throttled(progress: Progress) -> Progress:
    """Return a callback that passes on one call in `BEAT` seconds, and the last one."""
    last = float("-inf")

    def call(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= BEAT or done == total:
            last = now
            progress(done, total)

    return call
