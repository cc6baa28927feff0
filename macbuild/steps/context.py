"""Hand steps what they need besides their inputs: the store, the recipes, and how to report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

from macbuild.events import Emit, Meter, Progress
from macbuild.recipe.load import Recipes
from macbuild.recipe.lock import lock_command
from macbuild.store import Store

__all__ = ["Cancelled", "Context"]


class Cancelled(Exception):
    """The run was interrupted, and the step stops where it is."""


@dataclass
class Context:
    """Everything that steps need besides their inputs.

    Parameters
    ----------
    store
        Where results are read and written.
    recipes
        Folder that relative paths of recipes refer to.
    jobs
        Threads that the whole run may use.
    emit
        Receives events.
    epoch
        The time in what is built, in seconds since 1970.
    offline, mirrors
        How sources may be reached.
    lock_command
        Returns the command that pins sources, for hints.
    compiler_environ
        Environment with which compilers that steps start share the jobs of the run.
    """

    store: Store
    recipes: Recipes
    jobs: int
    emit: Emit
    epoch: int = 0
    offline: bool = False
    mirrors: Sequence[str] = ()
    lock_command: Callable[..., str] = lock_command
    compiler_environ: Mapping[str, str] = field(default_factory=dict)
    cancelled: Event = field(default_factory=Event)

    def meter(self, step: str, action: str, *, counts: bool = False) -> Meter:
        """Return a function that reports progress, in bytes or things, and stops a step of an interrupted run."""

        def report(done: int, total: int | None) -> None:
            if self.cancelled.is_set():
                raise Cancelled
            self.emit(Progress(step, action, done, total, counts))

        return report

    @contextmanager
    def step_lock(self, key: str) -> Iterator[None]:
        """Hold the lock of a step's key; give up when the run is interrupted."""
        with self.store.locked(key, self.cancelled.is_set):
            if self.cancelled.is_set():
                raise Cancelled
            yield
