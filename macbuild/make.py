"""The main job: plan, run, publish; and what came of it, for whoever shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from macbuild.errors import MacbuildError, StoreError
from macbuild.events import Emit
from macbuild.package.dist import publish, published
from macbuild.package.manifest import ArtifactEntry
from macbuild.plan import ArtifactPlan, FetchSpec, PackSpec, Plan
from macbuild.project import Project
from macbuild.run import Outcome, build
from macbuild.steps import Context

__all__ = ["Made", "Result", "make"]

State: TypeAlias = Literal["built", "restored", "up to date"]


@dataclass(frozen=True, slots=True)
class Made:
    """An artifact that is in `dist/` now. `seconds` is the work that this run spent on it."""

    plan: ArtifactPlan
    entry: ArtifactEntry
    state: State
    seconds: float
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How the main job ended.

    Parameters
    ----------
    plan
        The plan it came to.
    made
        What is in `dist/`.
    failed
        Errors by step or component.
    unreachable
        Components that could not be had and were allowed to be left out, with the reason.
    """

    plan: Plan
    made: tuple[Made, ...]
    failed: dict[str, MacbuildError]
    unreachable: dict[str, MacbuildError]

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return all(made.state == "up to date" for made in self.made) and not self.failed and not self.unreachable


def make(project: Project, components: Sequence[str], emit: Emit) -> Result:
    """Build components and publish their artifacts.

    Nothing is published if a component fails, unless the settings say to keep going.

    Parameters
    ----------
    project
        Where everything is, and the settings.
    components
        Names, each with an optional `@version`; all recipes if there is none.
    emit
        Receives events.

    Raises
    ------
    MacbuildError
        From planning; what fails while running is in the result.
    """
    settings = project.settings
    context = Context(
        project.store, project.recipes_folder, project.jobs, emit, offline=settings.offline, mirrors=settings.mirrors
    )
    outcome = build(project.planner, project.request(components), context, keep_going=settings.keep_going)
    failed = dict(outcome.errors)
    made = []
    if not failed or settings.keep_going:
        finished = [artifact for artifact in outcome.plan.artifacts if outcome.complete(artifact.step)]
        made = [_publish(project, outcome, artifact) for artifact in finished]
    unreachable = {refusal.component: refusal.error for refusal in outcome.plan.refused}
    return Result(outcome.plan, tuple(made), failed, unreachable)


def _publish(project: Project, outcome: Outcome, artifact: ArtifactPlan) -> Made:
    step = outcome.plan.steps[artifact.step]
    result = project.store.path(step.key)
    entry = _entry(result)
    stamp = project.store.root / "records" / f"{artifact.name}.published"
    seconds = sum(
        outcome.seconds.get(name, 0.0) for name in outcome.plan.steps if name.startswith(f"{artifact.component}-")
    )
    spec = step.spec
    assert isinstance(spec, PackSpec)
    sources = tuple(_describe(source) for source in spec.sources)
    if published(project.dist, entry, stamp):
        return Made(artifact, entry, "built" if step.id in outcome.seconds else "up to date", seconds, sources)
    sbom = (result / entry.sbom.file).read_text("utf-8")
    publish(project.dist, result / entry.file, sbom, entry, stamp)
    return Made(artifact, entry, "built" if step.id in outcome.seconds else "restored", seconds, sources)


def _entry(result: Path) -> ArtifactEntry:
    try:
        return msgspec.json.decode((result / "entry.json").read_bytes(), type=ArtifactEntry)
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError("is damaged", where=result, hint="remove it with: macbuild cache clean") from error


def _describe(spec: FetchSpec) -> str:
    return f"{spec.candidate.name}: {spec.candidate.fetch.describe()}"
