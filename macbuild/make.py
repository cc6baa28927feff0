"""The main job: plan, run, publish; and what came of it, for whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from macbuild.data import from_json
from macbuild.errors import IntegrityError, MacbuildError, PlanError, StoreError
from macbuild.events import Emit
from macbuild.files import atomic_path
from macbuild.package.dist import CHECKSUMS, MANIFEST, identity, publish, published
from macbuild.package.manifest import ArtifactEntry, Sidecar, checksum_name
from macbuild.plan import ArtifactPlan, BuildSpec, FetchSpec, PackSpec, Plan, Step
from macbuild.project import Project
from macbuild.run import Outcome, build
from macbuild.store import digest

__all__ = ["Head", "Made", "Result", "make", "make_needs"]

State: TypeAlias = Literal["built", "restored", "up to date"]
T = TypeVar("T")


class Head(msgspec.Struct, frozen=True):
    """What a table shows of an artifact; the whole entry lists ten thousand files and takes long to read."""

    file: str
    size: int
    sha256: str
    minimum_macos: str
    sbom: Sidecar


@dataclass(frozen=True)
class Made:
    """An artifact that is in `dist/` now. `seconds` is the work that this run spent on it."""

    plan: ArtifactPlan
    head: Head
    state: State
    seconds: float
    sources: tuple[str, ...]
    result: Path

    @cached_property
    def entry(self) -> ArtifactEntry:
        """The row of the manifest."""
        return _decode(self.result, ArtifactEntry)


@dataclass(frozen=True, slots=True)
class Result:
    """How the main job ended.

    Parameters
    ----------
    plan
        The plan it came to.
    made
        What is in `dist/`.
    stages
        Folders in the store with the stages that were asked for without artifacts, by step.
    failed
        Errors by step or component.
    unreachable
        Components that could not be had and were allowed to be left out, with the reason.
    """

    plan: Plan
    made: tuple[Made, ...]
    failed: dict[str, MacbuildError]
    unreachable: dict[str, MacbuildError]
    stages: Mapping[str, Path] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return all(made.state == "up to date" for made in self.made) and self.plan.idle and not self.failed


def make(project: Project, components: Sequence[str], emit: Emit, *, pack: bool = True) -> Result:
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
    pack
        Whether to make artifacts, or to stop at the fixed stages.

    Raises
    ------
    MacbuildError
        From planning; what fails while running is in the result.
    """
    settings = project.settings
    request = project.request(components, pack=pack)

    def plan(unavailable: Mapping[str, MacbuildError]) -> Plan:
        return project.planner(unavailable).plan(request)

    outcome = build(plan, project.context(emit), keep_going=settings.keep_going)
    refused = {refusal.component: refusal.error for refusal in outcome.plan.refused}
    failed = outcome.errors if settings.skip_unreachable else {**outcome.errors, **refused}
    made = []
    if not failed or settings.keep_going:
        finished = [artifact for artifact in outcome.plan.artifacts if outcome.complete(artifact.step)]
        made = [_publish(project, outcome, artifact) for artifact in finished]
        for row in made:
            _write_glance(project, row, outcome.plan.steps[row.plan.step].key)
    for step in outcome.plan.steps.values():
        project.store.touch(step.key)
    stages = {name: project.store.path(outcome.plan.steps[name].key) / "stage" for name in outcome.plan.stages}
    stages = {name: path for name, path in stages.items() if outcome.complete(name)}
    return Result(outcome.plan, tuple(made), failed, refused if settings.skip_unreachable else {}, stages)


def make_needs(project: Project, component: str, emit: Emit) -> tuple[BuildSpec, list[Path]]:
    """Make what a component is built with, not itself; return its build step, and the stages that this needs.

    Raises
    ------
    PlanError
        If the component is not one that is built.
    MacbuildError
        From planning, or if a need cannot be made.
    """
    request = project.request([component], pack=False)

    def plan(unavailable: Mapping[str, MacbuildError]) -> Plan:
        whole = project.planner(unavailable).plan(request)
        return msgspec.structs.replace(whole, stages=_build_step(whole, component).needs, checks=())

    outcome = build(plan, project.context(emit), keep_going=False)
    for error in outcome.errors.values():
        raise error
    step = _build_step(outcome.plan, component)
    assert isinstance(step.spec, BuildSpec)
    return step.spec, [project.store.path(outcome.plan.steps[need].key) / "stage" for need in step.needs]


def _build_step(plan: Plan, component: str) -> Step:
    name = component.partition("@")[0]
    for step in plan.steps.values():
        spec = step.spec
        if isinstance(spec, BuildSpec) and spec.component == name and spec.target and not spec.project:
            return step
    raise PlanError("is repackaged, so it has no build folder", where=component)


def _publish(project: Project, outcome: Outcome, artifact: ArtifactPlan) -> Made:
    step = outcome.plan.steps[artifact.step]
    spec = step.spec
    assert isinstance(spec, PackSpec)
    try:
        result = project.store.path(step.key)
        head = _decode(result, Head)
        state = _into_dist(project, artifact, head, step.key, result)
    except (IntegrityError, _DamagedError) as error:
        # The store no longer has what the step wrote. Without it the next run makes it again.
        project.store.discard(step.key)
        hint = "it was removed; run the same command again"
        raise StoreError(
            f"the result of {step.id} is damaged: {error.message}", where=error.where, hint=hint
        ) from error
    seconds = sum(outcome.seconds.get(name, 0.0) for name in outcome.plan.behind(step.id))
    sources = tuple(_describe(source) for source in spec.sources)
    if spec.inputs is not None:
        sources = ("source: " + ", ".join(f"{name} {number}" for name, number in spec.tools.items()), *sources)
    return Made(artifact, head, "built" if step.id in outcome.seconds else state, seconds, sources, result)


def _into_dist(project: Project, artifact: ArtifactPlan, head: Head, key: str, result: Path) -> State:
    """Publish an artifact unless it is there: seen at a glance, or after reading the manifest."""
    if _read(_glance_path(project, artifact)) == _glance(project, head, key):
        return "up to date"
    entry = _decode(result, ArtifactEntry)
    stamp = project.store.root / "records" / f"{artifact.name}.published"
    if published(project.dist, entry, stamp):
        return "up to date"
    try:
        sbom = (result / entry.sbom.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _DamagedError("its SBOM cannot be read", where=result) from error
    if not (result / entry.file).is_file():
        raise _DamagedError("its artifact is gone", where=result)
    publish(project.dist, result / entry.file, sbom, entry, stamp)
    return "restored"


def _glance_path(project: Project, artifact: ArtifactPlan) -> Path:
    return project.store.root / "records" / f"{artifact.name}.glance"


def _glance(project: Project, head: Head, key: str) -> str:
    """Return what changes if the artifact should be another one, or one of its files or lists was touched."""
    names = (head.file, checksum_name(head.file), head.sbom.file, CHECKSUMS, MANIFEST)
    return digest([key, *(identity(project.dist / name) for name in names)])


def _write_glance(project: Project, made: Made, key: str) -> None:
    path = _glance_path(project, made.plan)
    content = _glance(project, made.head, key)
    if _read(path) != content:
        # A store that cannot be written costs the next run a second look, no more.
        with suppress(StoreError), atomic_path(path) as partial:
            partial.write_text(content)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


class _DamagedError(StoreError):
    """A result in the store that is not what its step wrote."""


def _decode(result: Path, kind: type[T]) -> T:
    try:
        return from_json((result / "entry.json").read_bytes(), kind)
    except (OSError, UnicodeError, msgspec.MsgspecError) as error:
        raise _DamagedError("its entry cannot be read", where=result) from error


def _describe(spec: FetchSpec) -> str:
    return f"{spec.candidate.name}: {spec.candidate.fetch.describe()}"
