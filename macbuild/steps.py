"""What each kind of step does: read the results it needs from the store, write its own into a fresh folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from threading import Event

from macbuild.errors import AuditError, StoreError
from macbuild.events import Emit, Meter, Note, Progress, counted
from macbuild.plan import (
    AssembleSpec,
    AuditSpec,
    BuildSpec,
    CheckoutSpec,
    FetchSpec,
    FixSpec,
    InstallSpec,
    MergeSpec,
    PackSpec,
    PatchSpec,
    Plan,
    Spec,
    Step,
    UnpackSpec,
)
from macbuild.store import Store

__all__ = ["Cancelled", "Context", "run_step"]


class Cancelled(Exception):  # noqa: N818 - it is not an error
    """The run was interrupted; a step that is told so stops where it is."""


@dataclass
class Context:
    """What steps need besides their inputs.

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
    compiler_environ
        Environment with which compilers that steps start share the jobs of the run.
    """

    store: Store
    recipes: Path
    jobs: int
    emit: Emit
    epoch: int = 0
    offline: bool = False
    mirrors: Sequence[str] = ()
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


def run_step(step: Step, plan: Plan, context: Context, work: Path) -> str:
    """Run one step.

    Parameters
    ----------
    step, plan
        What to do, and the graph that its needs are in.
    work
        An empty folder that becomes the result.

    Returns
    -------
    str
        What to tell about it, for instance which source served.
    """
    inputs = [context.store.path(plan.steps[need].key) for need in step.needs]
    for need in step.needs:
        context.store.touch(plan.steps[need].key)
    return _do(step.spec, _Job(step, plan, context, inputs, work))


@dataclass(frozen=True, slots=True)
class _Job:
    """A step with all that it needs; `inputs` are the results of its needs."""

    step: Step
    plan: Plan
    context: Context
    inputs: Sequence[Path]
    work: Path

    @property
    def stages(self) -> list[Path]:
        return [path / "stage" for path in self.inputs]

    @property
    def stage(self) -> Path:
        return self.work / "stage"


# A run with nothing to do needs none of what these import.
@singledispatch
def _do(spec: Spec, job: _Job) -> str:
    raise TypeError(f"{job.step.id}: {type(spec)}")


@_do.register
def _fetch(spec: FetchSpec, job: _Job) -> str:
    from macbuild.fetch.download import Pin  # noqa: PLC0415
    from macbuild.fetch.providers import fetch  # noqa: PLC0415

    context = job.context
    for line in spec.passed_over:
        context.emit(Note("debug", f"passed over: {line}", job.step.id))
    fetch(
        spec.candidate.fetch,
        Pin(spec.pin.file, spec.pin.size, spec.pin.sha256),
        job.work / spec.pin.file,
        work=context.store.partial(spec.pin.sha256),
        shared=context.store.partial("shared"),
        base=context.recipes / spec.ref.component,
        offline=context.offline,
        mirrors=context.mirrors,
        progress=context.meter(job.step.id, "downloading"),
    )
    return f"served by {spec.candidate.name}: {spec.candidate.fetch.describe()}"


@_do.register
def _checkout(spec: CheckoutSpec, job: _Job) -> str:
    from macbuild.checkout import copy_checkout  # noqa: PLC0415

    copy_checkout(Path(spec.folder), job.stage, spec.sha256)
    return spec.folder


@_do.register
def _unpack(spec: UnpackSpec, job: _Job) -> str:
    from macbuild.fetch.unpack import unpack  # noqa: PLC0415

    del spec
    fetched = job.plan.steps[job.step.needs[0]]
    assert isinstance(fetched.spec, FetchSpec)
    pin = fetched.spec.pin
    archive = job.inputs[0] / pin.file
    if not archive.is_file() or archive.stat().st_size != pin.size:
        job.context.store.discard(fetched.key)
        hint = "it was removed; run the same command again"
        raise StoreError("the fetched file is damaged", where=archive, hint=hint)
    unpack(archive, job.work / "tree", progress=job.context.meter(job.step.id, "unpacking"))
    return archive.name


@_do.register
def _install(spec: InstallSpec, job: _Job) -> str:
    from macbuild.stage import install  # noqa: PLC0415

    install(job.inputs[0] / "tree", job.stage, spec.rules, spec.links)
    return ""


@_do.register
def _patch(spec: PatchSpec, job: _Job) -> str:
    from macbuild.patching import apply_edits, load_edits  # noqa: PLC0415
    from macbuild.recipe import Install  # noqa: PLC0415
    from macbuild.stage import install  # noqa: PLC0415

    install(job.stages[0], job.stage, [Install(source="**/*", to="")], [])
    edits = load_edits(job.context.recipes.parent / "patches" / spec.component)
    record = apply_edits(job.stage, edits, spec.platform)
    return counted(len(record.edits), "edit")


@_do.register
def _build(spec: BuildSpec, job: _Job) -> str:
    from macbuild.compile import compile_component  # noqa: PLC0415

    return compile_component(spec, job.stages, job.context, job.step.id, job.work)


@_do.register
def _fix(spec: FixSpec, job: _Job) -> str:
    from macbuild.repair import fix  # noqa: PLC0415

    changes = fix(job.stages[0], job.stage, spec.repair, spec.arch, spec.exports)
    return f"repaired {counted(len(changes), 'Mach-O file')}"


@_do.register
def _assemble(spec: AssembleSpec, job: _Job) -> str:
    from macbuild.assemble import assemble  # noqa: PLC0415

    fixed, *others = job.stages
    recipe = job.context.recipes / spec.component
    assemble(fixed, spec.package, list(zip(others, spec.includes, strict=True)), recipe, job.stage)
    return ""


@_do.register
def _merge(spec: MergeSpec, job: _Job) -> str:
    from macbuild.merge import merge_stages  # noqa: PLC0415

    merge_stages(dict(zip(spec.archs, job.stages, strict=True)), job.stage, spec.prefer)
    return ""


@_do.register
def _audit(spec: AuditSpec, job: _Job) -> str:
    from macbuild.audit import audit_tree, load_policy  # noqa: PLC0415
    from macbuild.ingredients import tool_digest  # noqa: PLC0415

    stage = job.stages[0]
    report = audit_tree(
        stage,
        load_policy(spec.policy),
        archs=frozenset(spec.target.slices),
        exemptions=spec.rules.exempt,
        exports=spec.rules.exports,
        minimum_macos=spec.target.deployment,
        providers=[path / name for path in job.inputs[1:] for name in ("stage", "link") if (path / name).is_dir()],
        requirements=spec.requirements,
        memory=job.context.store.facts(tool_digest("audit")),
    )
    if not report.ok:
        bad = [found for found in report.findings if found.severity == "error"]
        lines = [f"{found.file}: {found.message} [{found.rule}]" for found in bad]
        raise AuditError(
            f"the {report.policy} policy rejects the stage: " + "; ".join(lines),
            where=job.step.id,
            hint=f"see all findings with: macbuild audit {stage}",
        )
    data = report.to_json() | {"path": job.step.id.removesuffix("/audit")}
    (job.work / "report.json").write_text(json.dumps(data, indent=2, sort_keys=True), "utf-8")
    for finding in report.findings:
        job.context.emit(Note("debug", f"{finding.severity.value}: {finding.file}: {finding.message}", job.step.id))
    return f"{counted(report.files, 'Mach-O file')}, minimum macOS {report.minimum_macos}"


@_do.register
def _pack(spec: PackSpec, job: _Job) -> str:
    from macbuild.packing import pack_artifact  # noqa: PLC0415

    context = job.context
    meter = context.meter(job.step.id, "packing")
    report = job.inputs[1] / "report.json"
    return pack_artifact(spec, job.stages[0], report, context.store, context.recipes, context.jobs, meter, job.work)
