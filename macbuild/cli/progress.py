"""Show events: live bars on a terminal, plain lines elsewhere, JSON lines on request."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from macbuild.cli.messages import log_line
from macbuild.cli.session import Session
from macbuild.events import Emit, Event, Note, Progress, StepFinished, StepStarted

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

__all__ = ["Recorder", "subscribe"]

_LEVELS = {"debug": 1, "info": 0, "warning": -1}


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
    with _view(session) as show:

        def emit(event: Event) -> None:
            with lock:
                show(event)
                for other in others:
                    other(event)

        yield emit


@contextmanager
def _view(session: Session) -> Iterator[Emit]:
    if session.settings.log_format == "json":
        yield _json_lines
    elif session.live:
        live = _Live(session)
        with live.bars:
            yield live
    else:
        yield _Plain(session)


def _json_lines(event: Event) -> None:
    if isinstance(event, Progress):
        return
    log_line(type(event).__name__, **dataclasses.asdict(event))


def _wanted(event: Note, session: Session) -> bool:
    return session.verbosity >= _LEVELS[event.level]


def _line(event: Event) -> str | None:
    if isinstance(event, StepStarted):
        return f"{event.step}: {event.reason}"
    if isinstance(event, StepFinished) and event.status == "built":
        return f"{event.step}: done in {event.seconds:.1f} s" + (f", {event.detail}" if event.detail else "")
    if isinstance(event, StepFinished) and event.status == "failed":
        return f"{event.step}: failed"
    if isinstance(event, Note):
        return f"{event.step}: {event.message}" if event.step else event.message
    return None


class _Plain:
    """Write a line per event."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note):
            if not _wanted(event, self.session):
                return
        elif self.session.verbosity < 0:
            return
        line = _line(event)
        if line is not None:
            prefix = "warning: " if isinstance(event, Note) and event.level == "warning" else ""
            sys.stderr.write(prefix + line + "\n")
            sys.stderr.flush()


class _Live:
    """Show a bar for each running step, and a line for each that ended."""

    def __init__(self, session: Session) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            SpinnerColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars
        from rich.text import Text

        class Amount(DownloadColumn):
            """Bytes, or a plain count for a task that counts."""

            def render(self, task: Task) -> Text:
                if task.fields.get("counts"):
                    return Text(f"{task.completed:.0f}/{task.total or 0:.0f}", style="progress.download")
                return super().render(task)

        class Speed(TransferSpeedColumn):
            """Bytes a second; nothing for a task that counts."""

            def render(self, task: Task) -> Text:
                return Text() if task.fields.get("counts") else super().render(task)

        self.session = session
        self.bars: Bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            Amount(),
            Speed(),
            TimeElapsedColumn(),
            console=session.err,
            transient=True,
        )
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self.tasks[event.step] = self.bars.add_task(event.step, total=None)
        elif isinstance(event, Progress):
            if event.step not in self.tasks:
                self.tasks[event.step] = self.bars.add_task(event.step, total=None)
            description = f"{event.step} {event.action}"
            task = self.tasks[event.step]
            self.bars.update(
                task, completed=event.done, total=event.total, description=description, counts=event.counts
            )
        elif isinstance(event, StepFinished):
            ended = self.tasks.pop(event.step, None)
            if ended is not None:
                self.bars.remove_task(ended)
            mark = {"built": "[green]✓[/green] ", "failed": "[red]✗[/red] "}.get(event.status)
            line = _line(event)
            if mark and line:
                self.bars.console.print(mark + line.replace("[", r"\["))
        elif _wanted(event, self.session):
            line = (_line(event) or "").replace("[", r"\[")
            self.bars.console.print(f"[yellow]warning:[/yellow] {line}" if event.level == "warning" else line)
