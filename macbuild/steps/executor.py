"""Run a plan: steps in parallel where the graph allows, each result into the store, whole or not at all."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.documents import place_of
from macbuild.errors import MacbuildError, RecipeError, UnreachableError
from macbuild.events import Note, Status, StepFinished, StepsPlanned, StepStarted
from macbuild.plan.model import FetchSpec, Plan, Step
from macbuild.steps.context import Cancelled, Context
from macbuild.steps.dispatch import run_step

__all__ = ["Outcome", "build"]


@dataclass
class Outcome:
    """How a run ended: its last plan, the errors by step, and the wall time of each step in seconds."""

    plan: Plan
    errors: dict[str, MacbuildError] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def complete(self, step: str) -> bool:
        """Return True if a step's result is in the store."""
        return self.plan.steps[step].cached or (step in self.seconds and step not in self.errors)


def build(
    make_plan: Callable[[Mapping[str, MacbuildError]], Plan],
    context: Context,
    *,
    keep_going: bool,
) -> Outcome:
    """Plan and run until every goal is in the store, taking the next source when one cannot be reached.

    Parameters
    ----------
    make_plan
        Gives a plan without the sources that failed so far, by id with the error.
    context
        The store, the recipes and where to report.
    keep_going
        True if a failure stops only the steps that depend on it.

    Raises
    ------
    PlanError, LockError, UnreachableError
        From planning.
    KeyboardInterrupt
        After running steps have stopped.
    """
    unavailable: dict[str, MacbuildError] = {}
    seconds: dict[str, float] = {}
    errors: dict[str, MacbuildError] = {}
    while True:
        plan = make_plan(unavailable)
        outcome = _Execution(plan, context, errors, keep_going=keep_going).run()
        seconds.update(outcome.seconds)
        lost = {}
        errors = {}
        for step, error in outcome.errors.items():
            spec = plan.steps[step].spec
            if isinstance(error, UnreachableError) and isinstance(spec, FetchSpec):
                lost[spec.ref.id] = error
            else:
                errors[step] = error
        if not lost or (errors and not keep_going):
            return Outcome(plan, errors, seconds)
        unavailable.update(lost)
        for source, error in lost.items():
            context.emit(Note("warning", f"{source} is not available ({error})", ""))


class _Execution:
    """One pass over a plan."""

    def __init__(self, plan: Plan, context: Context, failed: Mapping[str, MacbuildError], *, keep_going: bool) -> None:
        self.outcome = Outcome(plan, dict(failed))
        self.context = context
        self.keep_going = keep_going
        self.waiting = {step.id: step for step in plan.needed() if step.id not in failed}
        self.running: dict[Future[float], Step] = {}

    def run(self) -> Outcome:
        if not self.waiting:
            return self.outcome
        from macbuild.steps.jobserver import Jobserver

        self.context.emit(StepsPlanned(tuple(self.waiting)))
        jobs = self.context.jobs
        with self.context.store.in_use(), Jobserver(jobs) as self.jobserver, ThreadPoolExecutor(jobs, "step") as pool:
            self.context.compiler_environ = self.jobserver.environ
            try:
                self._start_ready(pool)
                while self.running:
                    done, _ = wait(self.running, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._collect(self.running.pop(future), future)
                    self._start_ready(pool)
            except BaseException:
                self.context.cancelled.set()
                raise
        return self.outcome

    def _start_ready(self, pool: ThreadPoolExecutor) -> None:
        if self.outcome.errors and not self.keep_going and not self._only_unreachable():
            self.waiting.clear()
        for step in list(self.waiting.values()):
            if all(self.outcome.complete(need) for need in step.needs):
                self.waiting.pop(step.id)
                self.running[pool.submit(self._run_one, step)] = step

    def _only_unreachable(self) -> bool:
        return all(isinstance(error, UnreachableError) for error in self.outcome.errors.values())

    def _collect(self, step: Step, future: Future[float]) -> None:
        try:
            self.outcome.seconds[step.id] = future.result()
        except MacbuildError as error:
            self.outcome.errors[step.id] = error

    def _run_in(self, work: Path, step: Step) -> str:
        """Run a step; an error about its recipe names the recipe's file and line."""
        try:
            return run_step(step, self.outcome.plan, self.context, work)
        except RecipeError as error:
            name = step.id.partition("-")[0]  # no name of a component has a hyphen
            if name not in self.context.recipes:
                raise
            texts = [text for text in re.findall(r"'([^']*)'", error.message) if text]
            texts += [error.where] if error.where else []
            where = place_of(self.context.recipes.folder(name) / "recipe.toml", *texts)
            raise RecipeError(error.message, where=where, hint=error.hint) from error

    def _run_one(self, step: Step) -> float:
        context = self.context
        started = time.monotonic()
        status: Status = "failed"
        detail = ""
        try:
            with context.step_lock(step.key):
                if context.store.has(step.key):
                    status = "cached"
                else:
                    context.emit(StepStarted(step.id, step.key, step.reason))
                    with (
                        self.jobserver.token(context.cancelled.is_set),
                        context.store.building(step.key, step.id) as work,
                    ):
                        detail = self._run_in(work, step)
                    status = "built"
                context.store.write_record(step.id, step.ingredients)
        except Cancelled:
            status = "skipped"
            raise
        finally:
            seconds = time.monotonic() - started
            context.emit(StepFinished(step.id, step.key, status, started, seconds, detail))
        return seconds
