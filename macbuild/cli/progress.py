"""Show events: live bars on a terminal, plain lines elsewhere, JSON lines on request."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from macbuild.cli.messages import log_line, say
from macbuild.cli.overview import Overview, amount
from macbuild.cli.session import Session
from macbuild.cli.tables import fold_for
from macbuild.events import Emit, Event, Note, Progress, StepFinished, StepsPlanned, StepStarted
from macbuild.units import duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

__all__ = ["PATIENCE", "Recorder", "subscribe"]

PATIENCE = 60.0
"""Seconds without news after which a log says what still runs."""
_LEVELS = {"debug": 1, "info": 0, "warning": -1}
_MARGIN = 2  # spaces before what follows the first line of an event
_WIDE = 100  # columns that have room for the speed of a download


class Recorder:
    """Keep the ends of steps, for the report."""

    def __init__(self) -> None:
        self.steps: list[StepFinished] = []

    def __call__(self, event: Event) -> None:
        """Record an event."""
        if isinstance(event, StepFinished):
            self.steps.append(event)


@contextmanager
def subscribe(session: Session, *others: Emit) -> Iterator[Emit]:
    """Yield a function that shows events in the form that the settings ask for and passes them on to others."""
    lock = threading.Lock()
    overview = Overview()
    with _view(session, overview) as show, closing(_Watch(show, overview, lock)) as watch:

        def emit(event: Event) -> None:
            with lock:
                overview(event)
                show(event)
                for other in others:
                    other(event)
            if not session.live:
                watch.notice(event)

        yield emit


@contextmanager
def _view(session: Session, overview: Overview) -> Iterator[Emit]:
    if session.settings.log_format == "json":
        yield _json_lines
    elif session.live:
        live = _Live(session, overview)
        with live.bars:
            yield live
    else:
        yield _Plain(session, overview)


class _Watch:
    """Says what still runs whenever there was no news for some time."""

    def __init__(self, show: Emit, overview: Overview, lock: threading.Lock) -> None:
        self.show = show
        self.overview = overview
        self.lock = lock
        self.news = time.monotonic()
        self.end = threading.Event()
        self.thread: threading.Thread | None = None

    def close(self) -> None:
        """End the watch."""
        self.end.set()
        if self.thread is not None:
            self.thread.join()

    def notice(self, event: Event) -> None:
        """Take an event; the first that something runs starts the watch."""
        if not isinstance(event, Progress):
            self.news = time.monotonic()
        if self.thread is None and isinstance(event, StepStarted | Progress):
            self.thread = threading.Thread(target=self._watch, name="watch", daemon=True)
            self.thread.start()

    def _watch(self) -> None:
        while not self.end.wait(max(0.0, self.news + PATIENCE - time.monotonic())):
            if time.monotonic() - self.news >= PATIENCE:
                with self.lock:
                    for note in self.overview.notes():
                        self.show(note)
                self.news = time.monotonic()


def _json_lines(event: Event) -> None:
    if isinstance(event, Progress):
        return
    log_line(type(event).__name__, **dataclasses.asdict(event))


def _wanted(event: Note, session: Session) -> bool:
    return session.verbosity >= _LEVELS[event.level]


def _line(event: Event, overview: Overview) -> str | None:
    if isinstance(event, StepStarted):
        return f"{event.step}: {event.reason}"
    if isinstance(event, StepFinished) and event.status in {"built", "failed"}:
        place = f"[{overview.done}/{overview.total}] " if overview.total else ""
        if event.status == "failed":
            return f"{place}{event.step}: failed"
        detail = f", {event.detail}" if event.detail else ""
        return f"{place}{event.step}: done in {duration(event.seconds)}{detail}"
    if isinstance(event, Note):
        return f"{event.step}: {event.message}" if event.step else event.message
    return None


class _Plain:
    """Write a line per event."""

    def __init__(self, session: Session, overview: Overview) -> None:
        self.session = session
        self.overview = overview

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note):
            if not _wanted(event, self.session):
                return
        elif self.session.verbosity < 0:
            return
        line = _line(event, self.overview)
        if line is not None:
            say(f"warning: {line}" if isinstance(event, Note) and event.level == "warning" else line)


class _Live:
    """Show a bar for each running step and one for the run, and a line for each step that ended."""

    def __init__(self, session: Session, overview: Overview) -> None:
        from rich.progress import BarColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn, TransferSpeedColumn
        from rich.progress import Progress as Bars
        from rich.table import Column
        from rich.text import Text

        class Speed(TransferSpeedColumn):
            """Bytes a second, for a task that has bytes."""

            def render(self, task: Task) -> Text:
                return super().render(task) if task.fields["in_bytes"] else Text()

        text = "{task.description}"
        self.session = session
        self.overview = overview
        self.bars: Bars = Bars(
            SpinnerColumn(),
            TextColumn(text, markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[amount]}", markup=False, justify="right"),
            *([Speed(table_column=Column(no_wrap=True))] if session.err.width >= _WIDE else []),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            console=session.err,
            expand=True,
            transient=True,
        )
        self.tasks: dict[str, TaskID] = {}
        self.run: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepsPlanned):
            self.run = self.run if self.run is not None else self._add("", total=1.0)
        elif isinstance(event, StepStarted):
            track, _, kind = event.step.rpartition("/")
            self.tasks[event.step] = self._add(f"{kind} {track}")
        elif isinstance(event, Progress):
            self._show_progress(event)
        elif isinstance(event, StepFinished):
            ended = self.tasks.pop(event.step, None)
            if ended is not None:
                self.bars.remove_task(ended)
            self._print({"built": "[green]✓[/green] ", "failed": "[red]✗[/red] "}.get(event.status), event)
        elif _wanted(event, self.session):
            self._print("[yellow]warning:[/yellow] " if event.level == "warning" else "", event)
        if self.run is not None:
            self.bars.update(self.run, completed=self.overview.share, description=self.overview.line())

    def _add(self, description: str, total: float | None = None) -> TaskID:
        return self.bars.add_task(description, total=total, amount="", in_bytes=False)

    def _show_progress(self, event: Progress) -> None:
        track = event.step.rpartition("/")[0] or event.step
        if event.step not in self.tasks:
            self.tasks[event.step] = self._add(track)
        self.bars.update(
            self.tasks[event.step],
            completed=event.done,
            total=event.total,
            description=f"{event.action} {track}",
            amount=amount(event),
            in_bytes=not event.counts,
        )

    def _print(self, mark: str | None, event: Event) -> None:
        """Print the line of an event above the bars, if it has a mark and a line."""
        from rich.text import Text

        line = _line(event, self.overview)
        if mark is None or not line:
            return
        text = Text.from_markup(mark)
        room = " " * len(text)
        text.append(fold_for(self.session.err.file, room + line, _MARGIN)[len(room) :], style="default")
        self.bars.console.print(text, soft_wrap=True)
