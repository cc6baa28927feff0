"""Fuzz macbuild guided by coverage: each `target_<name>.py` has `check(data)`; any exception is a defect of macbuild.

`python -m tests.fuzz NAME` runs one. `seeds/<name>/` has its first inputs, and every input that ever failed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

__all__ = ["SEEDS", "TARGETS", "Check", "load", "seeds"]

Check: TypeAlias = Callable[[bytes], None]

SEEDS = Path(__file__).parent / "seeds"
TARGETS = ("audit", "data", "editor", "exports", "fat", "reader", "signer", "stub", "unpacker")


def load(name: str) -> Check:
    """Return the `check` of a target; macbuild is imported here and not earlier, so that it can be instrumented."""
    check: Check = importlib.import_module(f"tests.fuzz.target_{name}").check
    return check


def seeds(name: str) -> list[Path]:
    """Return the kept inputs of a target."""
    return sorted((SEEDS / name).iterdir())
