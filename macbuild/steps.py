"""What each kind of step does: read the results it needs from the store, write its own into a fresh folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TypeAlias

import msgspec

from macbuild.errors import AuditError, StoreError
from macbuild.events import Emit, Note, Progress, counted
from macbuild.plan import AuditSpec, FetchSpec, FixSpec, InstallSpec, MergeSpec, PackSpec, Plan, Step, UnpackSpec
from macbuild.store import Store

__all__ = ["Cancelled", "Context", "run_step"]

Meter: TypeAlias = Callable[[int, "int | None"], None]


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
    offline, mirrors
        How sources may be reached.
    """

    store: Store
    recipes: Path
    jobs: int
    emit: Emit
    offline: bool = False
    mirrors: Sequence[str] = ()
    cancelled: Event = field(default_factory=Event)

    def meter(self, step: str, action: str) -> Meter:
        """Return a function that reports progress in bytes, and stops the step once the run is interrupted."""

        def report(done: int, total: int | None) -> None:
            if self.cancelled.is_set():
                raise Cancelled
            self.emit(Progress(step, action, done, total))

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
    if isinstance(spec, FixSpec):
        return _fix(spec, inputs[0], work)
    if isinstance(spec, MergeSpec):
        from macbuild.merge import merge_stages  # noqa: PLC0415

        stages = {arch: path / "stage" for arch, path in zip(spec.archs, inputs, strict=True)}
        merge_stages(stages, work / "stage", spec.prefer)
        return ""
    if isinstance(spec, AuditSpec):
        return _audit(step, spec, inputs[0] / "stage", context, work)
    return _pack(step, spec, inputs[0] / "stage", inputs[1] / "report.json", context, work)


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

    changes = fix(source / "stage", work / "stage", spec.repair, spec.arch)
    return f"repaired {counted(len(changes), 'Mach-O file')}"


def _audit(step: Step, spec: AuditSpec, stage: Path, context: Context, work: Path) -> str:
    from macbuild.audit import audit_tree, load_policy  # noqa: PLC0415

    report = audit_tree(
        stage,
        load_policy(spec.policy),
        archs=frozenset(spec.target.slices),
        exemptions=spec.rules.exempt,
        exports=spec.rules.exports,
        minimum_macos=spec.target.deployment,
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


def _pack(step: Step, spec: PackSpec, stage: Path, report: Path, context: Context, work: Path) -> str:
    from macbuild.describe import describe  # noqa: PLC0415
    from macbuild.files import hash_file  # noqa: PLC0415
    from macbuild.macho.file import is_macho  # noqa: PLC0415
    from macbuild.macho.verify import verify_file  # noqa: PLC0415
    from macbuild.package.manifest import complete, record_tree  # noqa: PLC0415
    from macbuild.package.sbom import sbom  # noqa: PLC0415
    from macbuild.package.tarball import pack, verify_tarball  # noqa: PLC0415

    artifact = work / f"{spec.name}.tar.gz"
    records = record_tree(stage, context.jobs, context.meter(step.id, "hashing"))
    meter = context.meter(step.id, "packing")
    pack(stage, artifact, top=spec.name, epoch=spec.epoch, jobs=context.jobs, progress=meter)
    # Every member has the bytes of the stage, so what is verified in the stage now holds inside the artifact too.
    verify_tarball(artifact, {record.path: record for record in records}, top=spec.name)
    for record in records:
        if record.link is None and is_macho(stage / record.path):
            verify_file(stage / record.path)
    size, sha256 = hash_file(artifact)
    contents = describe(spec, stage, json.loads(report.read_text("utf-8")), records, size=size, sha256=sha256)
    text = sbom(contents, license=spec.recipe.license, epoch=spec.epoch)
    (work / f"{spec.name}.cdx.json").write_text(text, "utf-8")
    (work / "entry.json").write_bytes(msgspec.json.encode(complete(contents, text)))
    return f"{artifact.name}, {size / 1e6:.1f} MB"
