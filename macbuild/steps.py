"""What each kind of step does: read the results it needs from the store, write its own into a fresh folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from macbuild.errors import AuditError, StoreError
from macbuild.events import Emit, Meter, Note, Progress, counted
from macbuild.plan import (
    AssembleSpec,
    AuditSpec,
    BuildSpec,
    FetchSpec,
    FixSpec,
    InstallSpec,
    MergeSpec,
    Plan,
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
    spec = step.spec
    if isinstance(spec, FetchSpec):
        return _fetch(step, spec, context, work)
    if isinstance(spec, UnpackSpec):
        return _unpack(step, plan.steps[step.needs[0]], context, work)
    if isinstance(spec, InstallSpec):
        from macbuild.stage import install  # noqa: PLC0415 - a run with nothing to do needs none of these

        install(inputs[0] / "tree", work / "stage", spec.rules, spec.links)
        return ""
    if isinstance(spec, BuildSpec):
        from macbuild.compile import compile_component  # noqa: PLC0415

        stages = {name: path / "stage" for name, path in zip(spec.needed, inputs, strict=True)}
        return compile_component(spec, stages, context, step.id, work)
    if isinstance(spec, FixSpec):
        return _fix(spec, inputs[0], work)
    if isinstance(spec, AssembleSpec):
        from macbuild.assemble import assemble  # noqa: PLC0415

        fixed, *others = (path / "stage" for path in inputs)
        assemble(fixed, spec.package, list(zip(others, spec.includes, strict=True)), work / "stage")
        return ""
    if isinstance(spec, MergeSpec):
        from macbuild.merge import merge_stages  # noqa: PLC0415

        stages = {arch: path / "stage" for arch, path in zip(spec.archs, inputs, strict=True)}
        merge_stages(stages, work / "stage", spec.prefer)
        return ""
    if isinstance(spec, AuditSpec):
        return _audit(step, spec, inputs, context, work)
    from macbuild.packing import pack_artifact  # noqa: PLC0415

    meter = context.meter(step.id, "packing")
    stage, report = inputs[0] / "stage", inputs[1] / "report.json"
    return pack_artifact(spec, stage, report, context.store, context.recipes, context.jobs, meter, work)


def _fetch(step: Step, spec: FetchSpec, context: Context, work: Path) -> str:
    from macbuild.fetch.download import Pin  # noqa: PLC0415
    from macbuild.fetch.providers import fetch  # noqa: PLC0415

    for line in spec.passed_over:
        context.emit(Note("debug", f"passed over: {line}", step.id))
    fetch(
        spec.candidate.fetch,
        Pin(spec.pin.file, spec.pin.size, spec.pin.sha256),
        work / spec.pin.file,
        work=context.store.partial(spec.pin.sha256),
        base=context.recipes / spec.ref.component,
        offline=context.offline,
        mirrors=context.mirrors,
        progress=context.meter(step.id, "downloading"),
    )
    return f"served by {spec.candidate.name}: {spec.candidate.fetch.describe()}"


def _unpack(step: Step, fetched: Step, context: Context, work: Path) -> str:
    from macbuild.fetch.unpack import unpack  # noqa: PLC0415

    assert isinstance(fetched.spec, FetchSpec)
    pin = fetched.spec.pin
    archive = context.store.path(fetched.key) / pin.file
    if not archive.is_file() or archive.stat().st_size != pin.size:
        context.store.discard(fetched.key)
        hint = "it was removed; run the same command again"
        raise StoreError("the fetched file is damaged", where=archive, hint=hint)
    unpack(archive, work / "tree", progress=context.meter(step.id, "unpacking"))
    return archive.name


def _fix(spec: FixSpec, source: Path, work: Path) -> str:
    from macbuild.repair import fix  # noqa: PLC0415

    changes = fix(source / "stage", work / "stage", spec.repair, spec.arch, spec.exports)
    return f"repaired {counted(len(changes), 'Mach-O file')}"


def _audit(step: Step, spec: AuditSpec, inputs: Sequence[Path], context: Context, work: Path) -> str:
    from macbuild.audit import audit_tree, load_policy  # noqa: PLC0415
    from macbuild.ingredients import tool_digest  # noqa: PLC0415

    stage = inputs[0] / "stage"
    report = audit_tree(
        stage,
        load_policy(spec.policy),
        archs=frozenset(spec.target.slices),
        exemptions=spec.rules.exempt,
        exports=spec.rules.exports,
        minimum_macos=spec.target.deployment,
        providers=[path / name for path in inputs[1:] for name in ("stage", "link") if (path / name).is_dir()],
        requirements=spec.requirements,
        memory=context.store.facts(tool_digest("audit")),
    )
    if not report.ok:
        bad = [found for found in report.findings if found.severity == "error"]
        lines = [f"{found.file}: {found.message} [{found.rule}]" for found in bad]
        raise AuditError(
            f"the {report.policy} policy rejects the stage: " + "; ".join(lines),
            where=step.id,
            hint=f"see all findings with: macbuild audit {stage}",
        )
    data = report.to_json() | {"path": step.id.removesuffix("/audit")}
    (work / "report.json").write_text(json.dumps(data, indent=2, sort_keys=True), "utf-8")
    for finding in report.findings:
        context.emit(Note("debug", f"{finding.severity.value}: {finding.file}: {finding.message}", step.id))
    return f"{counted(report.files, 'Mach-O file')}, minimum macOS {report.minimum_macos}"
