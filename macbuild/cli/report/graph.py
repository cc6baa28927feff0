"""Draw the graph of the steps in layers from left to right, each step to the right of all that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from macbuild.cli.report.markup import Html, box, count, el, picture
from macbuild.cli.report.timeline import State
from macbuild.plan.model import Plan, Step
from macbuild.units import duration

__all__ = ["Place", "layout", "step_graph"]

_WIDTH, _HEIGHT = 144, 46
_COLUMN, _ROW = 180, 92
_LABEL = 14  # pixels from a box up to the top of its label
_LETTER = 6.7  # width of a letter of a label
_LEFT, _TOP = 4, 26


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a step: the layer counts from 0; rows are at least 1 apart within a layer."""

    layer: int
    row: float

    @property
    def x(self) -> float:
        """Left edge in pixels."""
        return _LEFT + self.layer * _COLUMN

    @property
    def y(self) -> float:
        """Middle in pixels."""
        return _TOP + self.row * _ROW + _HEIGHT / 2


def layout(steps: Mapping[str, Step]) -> dict[str, Place]:
    """Return a place for each step: right of its needs, at their mean height, or lower where that is taken.

    Parameters
    ----------
    steps
        By id, each after those it needs.
    """
    places: dict[str, Place] = {}
    for step in steps.values():
        needs = [places[need] for need in step.needs]
        layer = 1 + max((need.layer for need in needs), default=-1)
        if needs:
            # Quarters add up without a rounding error.
            row = round(4 * sum(need.row for need in needs) / len(needs)) / 4
        else:
            row = 1 + max((place.row for place in places.values()), default=-1.0)
        for other in sorted(place.row for place in places.values() if place.layer == layer):
            if abs(other - row) < 1:
                row = other + 1
        places[step.id] = Place(layer, row)
    return places


def step_graph(plan: Plan, states: Mapping[str, State]) -> Html:
    """Return a picture of a plan's steps and how each ended."""
    if not plan.steps:
        return el("p", "The plan has no steps.", class_="quiet")
    places = layout(plan.steps)
    width = _LEFT * 2 + max(place.layer for place in places.values()) * _COLUMN + _WIDTH
    height = max(place.y for place in places.values()) + _HEIGHT / 2 + 22
    edges = [_edge(places[need], places[step.id]) for step in plan.steps.values() for need in step.needs]
    nodes = [_node(step, places[step.id], states[step.id]) for step in plan.steps.values()]
    title = f"{count(len(plan.steps), 'step')}; an arrow leads from a step to one that uses its result"
    drawing = picture(
        f"Graph of {title}",
        *edges,
        *_names(places),
        *nodes,
        class_="graph",
        width=width,
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
    )
    return el("figure", box("Graph of the steps", drawing), el("figcaption", f"{title}."))


def _names(places: Mapping[str, Place]) -> list[Html]:
    """Return a label above the first step of each track, which is the part of a step's id before the slash."""
    first: dict[str, Place] = {}
    for name, place in places.items():
        first.setdefault(name.rpartition("/")[0], place)
    return [_name(track, place, places.values(), first.values()) for track, place in first.items()]


def _name(track: str, place: Place, boxes: Iterable[Place], labelled: Iterable[Place]) -> Html:
    """Return the label of a track, cut before the next box or label to its right; the tooltip has all of it."""
    height = place.y - _HEIGHT / 2 - 8
    ends = [box.x for box in boxes if box.x > place.x and abs(box.y - height) < _HEIGHT / 2 + _LABEL / 2]
    ends += [other.x for other in labelled if other.x > place.x and abs(other.y - place.y) < _LABEL]
    fits = int((min(ends) - place.x - 8) / _LETTER) if ends else len(track)
    label = track if len(track) <= fits else f"{track[: fits - 1]}…"
    return el("text", el("title", track), label, x=place.x, y=height, class_="track")


def _node(step: Step, place: Place, state: State) -> Html:
    detail = state.word if state.seconds is None else f"{state.word} · {duration(state.seconds)}"
    top = place.y - _HEIGHT / 2
    return el(
        "g",
        el("title", f"{step.id}: {detail}; {step.reason}; key {step.key[:12]}"),
        el("rect", x=place.x, y=top, width=_WIDTH, height=_HEIGHT, rx=8),
        el("text", step.id.rpartition("/")[2], x=place.x + 12, y=top + 20, class_="kind"),
        el("text", detail, x=place.x + 12, y=top + 36, class_="detail"),
        class_=f"step {state.status}",
    )


def _edge(start: Place, end: Place) -> Html:
    """Return an arrow; one that skips layers runs below the boxes between."""
    x1, x2 = start.x + _WIDTH, end.x - 2
    if end.layer == start.layer + 1:
        middle = (x1 + x2) / 2
        path = f"M{x1:g} {start.y:g}C{middle:g} {start.y:g} {middle:g} {end.y:g} {x2:g} {end.y:g}"
    else:
        low = max(start.y, end.y) + _HEIGHT / 2 + 14
        path = (
            f"M{x1:g} {start.y + 8:g}C{x1 + 26:g} {start.y + 8:g} {x1 + 8:g} {low:g} {x1 + 36:g} {low:g}"
            f"H{x2 - 40:g}C{x2 - 8:g} {low:g} {x2 - 30:g} {end.y + 10:g} {x2:g} {end.y + 10:g}"
        )
    tip = end.y if end.layer == start.layer + 1 else end.y + 10
    head = f"M{x2 - 7:g} {tip - 4:g}L{x2:g} {tip:g}L{x2 - 7:g} {tip + 4:g}"
    return el("path", d=path + head, class_="edge")
