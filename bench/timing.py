"""Time two commands in turns, so that a change of the machine's speed affects both."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Row", "command", "compare", "duration"]


@dataclass(frozen=True)
class Row:
    """A measured row of the performance budget: seconds of ours and of the other, and the maximum ratio."""

    name: str
    against: str
    ours: float
    other: float
    budget: float
    note: str = ""

    @property
    def ratio(self) -> float:
        """Ours divided by the other."""
        return self.ours / self.other

    @property
    def holds(self) -> bool:
        """True if the budget holds."""
        return self.ratio <= self.budget


def duration(seconds: float) -> str:
    """Return a time in a suitable unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def command(
    arguments: Sequence[str],
    prepare: Callable[[], object] | None = None,
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Callable[[], float]:
    """Return a function that runs a command, preparation not counted, and returns its wall time in seconds."""

    def run() -> float:
        if prepare is not None:
            prepare()
        start = time.perf_counter()
        subprocess.run(
            arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd, env=environ
        )
        return time.perf_counter() - start

    return run


def compare(ours: Callable[[], float], other: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Run both in turns after one warm-up and return the medians, in seconds."""
    ours()
    other()
    pairs = [(ours(), other()) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)
