"""Typed events of a run: progress bars, logs and reports subscribe to them, and nothing below `cli/` prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "BEAT",
    "Emit",
    "Event",
    "Meter",
    "Note",
    "Progress",
    "Status",
    "StepFinished",
    "StepStarted",
    "StepsPlanned",
    "counted",
    "discard",
    "silent",
    "throttled",
]

BEAT = 0.1  # seconds between two calls of a callback that shows progress or asks whether to go on

Status: TypeAlias = Literal["built", "cached", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class StepsPlanned:
    """These steps are going to run. Comes again with the rest if a source is not available and the plan changes."""

    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step started to run."""

    step: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A step made progress. `done` and `total` are bytes, or things if `counts`; `total` is None while unknown."""

    step: str
    action: str
    done: int
    total: int | None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step ended. `started` and `seconds` are on the clock of `time.monotonic`."""

    step: str
    key: str
    status: Status
    started: float
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A message for a person, at one of three levels."""

    level: Literal["debug", "info", "warning"]
    message: str
    step: str = ""


Event: TypeAlias = StepsPlanned | StepStarted | Progress | StepFinished | Note
Emit: TypeAlias = Callable[[Event], None]
# Takes the bytes or things done, and the total or None. What it raises ends the work: this is how a run is cancelled.
Meter: TypeAlias = Callable[[int, "int | None"], None]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in `1 file` and `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def discard(event: Event) -> None:
    """Take an event and do nothing: the subscriber of callers that ignore events."""
    del event


def silent(done: int, total: int | None) -> None:
    """Take progress and do nothing: the meter of callers that show none."""
    del done, total


def throttled(meter: Meter) -> Meter:
    """Return a meter that passes on one call every `BEAT` seconds, and the last one."""
    last = float("-inf")

    def call(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= BEAT or done == total:
            last = now
            meter(done, total)

    return call
