"""Run a step by its kind: it reads the results it needs from the store and writes its own into a fresh folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

from macbuild.errors import AuditError, IntegrityError, StoreError
from macbuild.events import Note, counted
from macbuild.plan.model import (
    AssembleSpec,
    AuditSpec,
    BuildSpec,
    CheckoutSpec,
    FetchSpec,
    FixSpec,
    LayoutSpec,
    MergeSpec,
    PackSpec,
    PatchSpec,
    Plan,
    Spec,
    Step,
    UnpackSpec,
)
from macbuild.steps.context import Context

__all__ = ["run_step"]


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
        A detail for people, for instance which source served.
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


# The handlers import what they need: a run with nothing to do needs none of it.
@singledispatch
def _do(spec: Spec, job: _Job) -> str:
    raise TypeError(f"{job.step.id}: {type(spec)}")


@_do.register
def _fetch(spec: FetchSpec, job: _Job) -> str:
    from macbuild.source.fetch.download import Pin
    from macbuild.source.fetch.providers import fetch

    context = job.context
    for line in spec.skipped:
        context.emit(Note("debug", f"skipped: {line}", job.step.id))
    component = spec.ref.component
    try:
        fetch(
            spec.candidate.fetch,
            Pin(spec.pin.file, spec.pin.size, spec.pin.sha256),
            job.work / spec.pin.file,
            work=context.store.partial(spec.pin.sha256),
            shared=context.store.partial("shared"),
            base=context.recipes.folder(component),
            offline=context.offline,
            mirrors=context.mirrors,
            progress=context.meter(job.step.id, "downloading"),
        )
    except IntegrityError as error:
        hint = f"if the change is intended, pin it and review the lock: {context.lock_command('--update', component)}"
        raise IntegrityError(error.message, where=error.where, hint=hint) from error
    return f"served by {spec.candidate.name}: {spec.candidate.fetch.describe()}"


@_do.register
def _checkout(spec: CheckoutSpec, job: _Job) -> str:
    from macbuild.source.checkout import copy_checkout

    copy_checkout(Path(spec.folder), job.stage, spec.sha256)
    return spec.folder


@_do.register
def _unpack(spec: UnpackSpec, job: _Job) -> str:
    from macbuild.source.archive.unpack import unpack

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
def _layout(spec: LayoutSpec, job: _Job) -> str:
    from macbuild.steps.layout import lay_out

    lay_out(job.inputs[0] / "tree", job.stage, spec.rules, spec.links)
    return ""


@_do.register
def _patch(spec: PatchSpec, job: _Job) -> str:
    from macbuild.recipe.model import LayoutRule
    from macbuild.source.patch.apply import apply_edits
    from macbuild.source.patch.model import load_edits
    from macbuild.steps.layout import lay_out

    lay_out(job.stages[0], job.stage, [LayoutRule(source="**/*", to="")], [])
    edits = load_edits(job.context.recipes.edits(spec.component))
    record = apply_edits(job.stage, edits, spec.platform)
    return counted(len(record.edits), "edit")


@_do.register
def _build(spec: BuildSpec, job: _Job) -> str:
    from macbuild.steps.build import compile_component

    return compile_component(spec, job.stages, job.context, job.step.id, job.work)


@_do.register
def _fix(spec: FixSpec, job: _Job) -> str:
    from macbuild.steps.fix import fix

    changes = fix(job.stages[0], job.stage, spec.rules, spec.arch, spec.exports)
    return f"fixed {counted(len(changes), 'Mach-O file')}"


@_do.register
def _assemble(spec: AssembleSpec, job: _Job) -> str:
    from macbuild.steps.assemble import assemble

    fixed, *others = job.stages
    recipe = job.context.recipes.folder(spec.component)
    assemble(fixed, spec.package, list(zip(others, spec.includes, strict=True)), recipe, job.stage)
    return ""


@_do.register
def _merge(spec: MergeSpec, job: _Job) -> str:
    from macbuild.steps.merge import merge_stages

    merge_stages(dict(zip(spec.archs, job.stages, strict=True)), job.stage, spec.prefer)
    return ""


@_do.register
def _audit(spec: AuditSpec, job: _Job) -> str:
    from macbuild.audit import audit_tree, load_policy
    from macbuild.plan.keys import tool_digest

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
    from macbuild.steps.pack import pack_artifact

    meter = job.context.meter(job.step.id, "packing")
    return pack_artifact(spec, job.stages[0], job.inputs[1] / "report.json", job.work, job.context, meter=meter)
