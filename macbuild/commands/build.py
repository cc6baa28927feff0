"""Build components and publish their artifacts: plan, run the steps, copy what they made into `dist/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.commands.project import Project
from macbuild.commands.publish import PublishedArtifact, publish_artifact, remember_published
from macbuild.errors import MacbuildError
from macbuild.events import Emit
from macbuild.package.dist import check_writable
from macbuild.plan.model import Plan
from macbuild.steps import executor

__all__ = ["BuildResult", "build"]


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Outcome of a build.

    Parameters
    ----------
    plan
        The plan that was carried out.
    published
        Artifacts that are in `dist/` now.
    failed
        Errors, by step or component.
    unreachable
        Components that were left out because no source of them is available, with the reason.
    stages
        Folders in the store with the stages that were asked for without artifacts, by step.
    seconds
        Wall time of each step that ran.
    """

    plan: Plan
    published: tuple[PublishedArtifact, ...]
    failed: dict[str, MacbuildError]
    unreachable: dict[str, MacbuildError]
    stages: Mapping[str, Path] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """True if there was nothing to do."""
        return all(artifact.state == "up to date" for artifact in self.published) and self.plan.idle and not self.failed


def build(project: Project, components: Sequence[str], emit: Emit, *, pack: bool = True) -> BuildResult:
    """Build components and publish their artifacts.

    Nothing is published if a component fails, unless the settings say to keep going.

    Parameters
    ----------
    project
        Recipes, lock, store and settings.
    components
        Names, each with an optional `@version`; all recipes if there is none.
    emit
        Receives events.
    pack
        False to stop at the fixed stages and make no artifacts.

    Raises
    ------
    MacbuildError
        From planning. What fails while the steps run is in the result.
    """
    settings = project.settings
    request = project.request(components, pack=pack)

    def plan(unavailable: Mapping[str, MacbuildError]) -> Plan:
        made = project.planner(unavailable).plan(request)
        if made.artifacts and not made.idle:
            check_writable(project.dist)
        return made

    outcome = executor.build(plan, project.context(emit), keep_going=settings.keep_going)
    refused = {refusal.component: refusal.error for refusal in outcome.plan.refused}
    failed = outcome.errors if settings.skip_unreachable else {**outcome.errors, **refused}
    published = []
    if not failed or settings.keep_going:
        finished = [artifact for artifact in outcome.plan.artifacts if outcome.complete(artifact.step)]
        published = [publish_artifact(project, outcome, artifact) for artifact in finished]
        for artifact in published:
            remember_published(project, artifact, outcome.plan.steps[artifact.plan.step].key)
    for step in outcome.plan.steps.values():
        project.store.touch(step.key)
    stages = {name: project.store.path(outcome.plan.steps[name].key) / "stage" for name in outcome.plan.stages}
    stages = {name: path for name, path in stages.items() if outcome.complete(name)}
    return BuildResult(
        outcome.plan,
        tuple(published),
        failed,
        refused if settings.skip_unreachable else {},
        stages,
        outcome.seconds,
    )
