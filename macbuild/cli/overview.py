"""Count the steps of a run, and estimate how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from macbuild.events import Event, Note, Progress, StepFinished, StepsPlanned, StepStarted
from macbuild.units import duration, size

__all__ = ["Overview", "amount"]

# What a step of a kind takes, compared to others: compiling takes most of a run.
_WEIGHTS = {"build": 30.0, "pack": 5.0, "fetch": 5.0, "consumer": 3.0, "unpack": 2.0, "merge": 2.0}
_EARLY = 0.02  # share of the work, before which an estimate is a guess
_SHORT = 10.0  # seconds of a run, likewise


def amount(event: Progress) -> str:
    """Return how much of a step is done, as in `12 of 158 files` and `1.2 of 110.0 MB`; nothing while unknown."""
    if event.counts:
        return f"{event.done} of {event.total} files" if event.total else ""
    done = size(event.done)
    if event.total is None:
        return done if event.done else ""
    whole = size(event.total)
    number, unit = done.split(" ")
    return f"{number if whole.endswith(f' {unit}') else done} of {whole}"


class Overview:
    """Takes the events of a run and knows what runs, what is done, and about how long the rest takes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin: float | None = None
        self._planned: set[str] = set()
        self._ended: set[str] = set()
        self._running: dict[str, float] = {}
        self._latest: dict[str, Progress] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, StepsPlanned):
            self._begin = self._clock() if self._begin is None else self._begin
            self._planned = self._ended | set(event.steps)
        elif isinstance(event, StepStarted):
            self._running[event.step] = self._clock()
        elif isinstance(event, Progress):
            self._take_progress(event)
        elif isinstance(event, StepFinished):
            self._forget(event.step)
            self._ended.add(event.step)

    def _take_progress(self, event: Progress) -> None:
        """Note the progress of a step, or of a download that belongs to no step and has no other end."""
        self._running.setdefault(event.step, self._clock())
        self._latest[event.step] = event
        if event.step not in self._planned and event.done == event.total:
            self._forget(event.step)

    def _forget(self, step: str) -> None:
        self._running.pop(step, None)
        self._latest.pop(step, None)

    @property
    def done(self) -> int:
        """The number of steps that ended."""
        return len(self._ended)

    @property
    def total(self) -> int:
        """The number of steps of the run."""
        return len(self._planned)

    @property
    def share(self) -> float:
        """The share of the work that is done, between 0 and 1."""
        whole = sum(map(_weight, self._planned)) or 1.0
        running = [_weight(step) * self._part(step) for step in self._running if step in self._planned]
        return (sum(map(_weight, self._ended)) + sum(running)) / whole

    def _part(self, step: str) -> float:
        event = self._latest.get(step)
        return event.done / event.total if event and event.total else 0.0

    def line(self) -> str:
        """Return the position in the run, as in `step 34 of 158, about 12 min left`."""
        current = len(self._ended) + len(self._running.keys() & self._planned)
        share = self.share
        elapsed = 0.0 if self._begin is None else self._clock() - self._begin
        text = f"step {current} of {self.total}"
        if share < _EARLY or share >= 1 or elapsed < _SHORT:
            return text
        minutes = round(elapsed * (1 - share) / share / 60)
        if minutes == 0:
            return f"{text}, less than a minute left"
        left = f"{minutes} min" if minutes < 100 else f"{round(minutes / 60)} h"
        return f"{text}, about {left} left"

    def notes(self) -> Iterator[Note]:
        """Yield what runs and for how long, a note for each step or download."""
        place = f" ({self.line()})" if self._planned else ""
        now = self._clock()
        for step, begin in self._running.items():
            event = self._latest.get(step)
            words = f"still {event.action}" if event else "still running"
            facts = [words, amount(event) if event else "", f"after {duration(now - begin)}"]
            yield Note("info", f"{', '.join(filter(None, facts))}{place}", step)


def _weight(step: str) -> float:
    return _WEIGHTS.get(step.rpartition("/")[2].partition(" ")[0], 1.0)
