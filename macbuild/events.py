"""What happened, as typed events: progress bars, logs and reports subscribe, nothing below `cli/` prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Emit", "Event", "Meter", "Note", "Progress", "Status", "StepFinished", "StepStarted", "counted", "discard"]

Status: TypeAlias = Literal["built", "cached", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step began to run."""

    step: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A step got further. `done` and `total` are bytes, or things if `counts`; `total` is None while it is unknown."""

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
    """Something that a person may want to know, at one of three levels."""

    level: Literal["debug", "info", "warning"]
    message: str
    step: str = ""


Event: TypeAlias = StepStarted | Progress | StepFinished | Note
Emit: TypeAlias = Callable[[Event], None]
Meter: TypeAlias = Callable[[int, "int | None"], None]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in `1 file` and `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def discard(event: Event) -> None:
    """Take an event and do nothing: the subscriber of callers that do not want to know."""
    del event
