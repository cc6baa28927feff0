"""Draw the time line: when each step ran, side by side where steps ran at the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from macbuild.cli.report.markup import Cell, Column, Html, box, count, el, join, percent, picture, table
from macbuild.events import StepFinished
from macbuild.plan.model import Plan
from macbuild.units import duration

__all__ = ["Span", "State", "lanes", "states", "timeline"]

_LANE = 34
_AXIS = 24
_GLYPH = 0.0095  # Width of a letter as a share of the picture at its least width.
_WORDS = {"built": "built", "cached": "in store", "failed": "failed", "skipped": "not run", "unneeded": "not needed"}


@dataclass(frozen=True, slots=True)
class State:
    """How a step ended: a status of the style sheet, its word, and the seconds it took if it ran."""

    status: str
    seconds: float | None = None

    @property
    def word(self) -> str:
        """The word for a person to read."""
        return _WORDS[self.status]


@dataclass(frozen=True, slots=True)
class Span:
    """A step on the time line: shares of the whole, and its lane."""

    event: StepFinished
    start: float
    width: float
    lane: int


def states(plan: Plan, steps: Sequence[StepFinished]) -> dict[str, State]:
    """Return how each step of a plan ended, from its last event or else from the store."""
    needed = {step.id for step in plan.needed()}
    found = {
        step.id: State("cached" if step.cached else "skipped" if step.id in needed else "unneeded")
        for step in plan.steps.values()
    }
    for event in steps:
        found[event.step] = State(event.status, event.seconds)
    return found


def lanes(steps: Sequence[StepFinished]) -> list[Span]:
    """Return steps by start, each in the first lane that is free at that time."""
    if not steps:
        return []
    begin = min(event.started for event in steps)
    whole = total(steps) or 1.0
    ends: list[float] = []
    spans = []
    for event in sorted(steps, key=lambda event: (event.started, event.step)):
        lane = next((index for index, end in enumerate(ends) if end <= event.started), len(ends))
        ends[lane : lane + 1] = [event.started + event.seconds]
        spans.append(Span(event, (event.started - begin) / whole, event.seconds / whole, lane))
    return spans


def total(steps: Sequence[StepFinished]) -> float:
    """Return the seconds from the first start to the last end."""
    if not steps:
        return 0.0
    return max(event.started + event.seconds for event in steps) - min(event.started for event in steps)


def timeline(plan: Plan, steps: Sequence[StepFinished]) -> Html:
    """Return a picture of the lanes, and a table of all steps."""
    spans = lanes(steps)
    if not spans:
        return join([el("p", "No step had to run.", class_="quiet"), _table(plan, steps, spans)])
    whole = total(steps)
    rows = 1 + max(span.lane for span in spans)
    title = f"Time line: {count(len(spans), 'step')} in {duration(whole)}, at most {rows} at the same time"
    drawing = picture(
        f"{title}. The table below says the same.",
        *_axis(whole, rows),
        *(_bar(span) for span in spans),
        class_="lanes",
        width="100%",
        height=_AXIS + rows * _LANE,
    )
    used = [status for status in ("built", "cached", "failed") if any(span.event.status == status for span in spans)]
    legend = el("p", *(el("span", _WORDS[status], class_=f"key {status}") for status in used), class_="legend")
    caption = el("figcaption", f"{title}.")
    return join([el("figure", box("Time line", drawing), legend, caption), _table(plan, steps, spans)])


def _axis(whole: float, rows: int) -> list[Html]:
    step = _tick(whole)
    shapes = []
    for index in range(int(whole / step) + 1 if step else 1):
        at = index * step / whole if whole else 0.0
        shapes.append(el("line", x1=percent(at), x2=percent(at), y1=_AXIS - 6, y2=_AXIS + rows * _LANE, class_="grid"))
        if at < 0.95:
            shapes.append(el("text", f"{index * step:g} s", x=percent(at), dx=4, y=_AXIS - 9, class_="tick"))
    return shapes


def _tick(whole: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that divides the whole in at most eight."""
    if whole <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(whole / 8))
    return next(power * factor for factor in (1, 2, 5, 10) if whole / (power * factor) <= 8)


def _bar(span: Span) -> Html:
    event = span.event
    track, _, kind = event.step.rpartition("/")
    labels = (f"{kind} {track}", f"{kind} {track.partition('-')[0]}", kind)
    label = next((label for label in labels if len(label) * _GLYPH + 0.025 < span.width), "")
    words = f"{event.step}: {_WORDS[event.status]}, {duration(event.seconds)}"
    shape = el("rect", x=0, y=3, width="100%", height=_LANE - 6, rx=4)
    text = [el("text", label, x=8, y=_LANE / 2 + 4)] if label else []
    return el(
        "svg",
        el("title", words),
        shape,
        *text,
        x=percent(span.start),
        y=_AXIS + span.lane * _LANE,
        width=percent(max(span.width, 0.003)),
        height=_LANE,
        class_=f"step {event.status}",
    )


def _table(plan: Plan, steps: Sequence[StepFinished], spans: Sequence[Span]) -> Html:
    begin = min((event.started for event in steps), default=0.0)
    rows: list[list[str | Cell]] = []
    for span in spans:
        event = span.event
        place = {"x": percent(span.start), "width": percent(max(span.width, 0.004))}
        mini = el("svg", el("rect", y=0, height="100%", rx=2, **place), aria_hidden="true", class_=event.status)
        reason = plan.steps[event.step].reason if event.step in plan.steps else ""
        why = event.detail or ("" if reason == "in store" else reason)
        start = f"+{event.started - begin:.2f} s"
        rows.append([event.step, _mark(State(event.status)), start, duration(event.seconds), mini, why])
    ran = {event.step for event in steps}
    for name, state in states(plan, steps).items():
        if name not in ran:
            rows.append([name, _mark(state), "", "", "", ""])
    columns = [
        Column("Step"),
        Column("Status"),
        Column("Start", "number"),
        Column("Took", "number"),
        Column("When", "bar"),
        Column("Note", "note"),
    ]
    return el("div", table("Steps in order of their start", columns, [("", rows)]), class_="steps")


def _mark(state: State) -> Html:
    return el("span", state.word, class_=f"key {state.status}")
