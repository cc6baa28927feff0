"""Copy the artifacts of a run from the store to `dist/`, unless they are there already."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from macbuild.commands.project import Project
from macbuild.data import from_json
from macbuild.errors import FileError, IntegrityError, StoreError
from macbuild.files import atomic_path
from macbuild.package.dist import CHECKSUMS, MANIFEST, identity, publish, published
from macbuild.package.manifest import ArtifactEntry, Sidecar, checksum_name
from macbuild.plan.model import ArtifactPlan, FetchSpec, PackSpec
from macbuild.steps.executor import Outcome
from macbuild.store import digest

__all__ = ["ArtifactSummary", "PublishState", "PublishedArtifact", "publish_artifact", "remember_published"]


PublishState: TypeAlias = Literal["built", "restored", "up to date"]
T = TypeVar("T")


class ArtifactSummary(msgspec.Struct, frozen=True):
    """The facts of an artifact that a table shows; its whole entry may list ten thousand files and is slow to read."""

    file: str
    size: int
    sha256: str
    minimum_macos: str
    sbom: Sidecar


@dataclass(frozen=True)
class PublishedArtifact:
    """An artifact that is in `dist/` now. `seconds` is the time that this run spent on its steps."""

    plan: ArtifactPlan
    summary: ArtifactSummary
    state: PublishState
    seconds: float
    sources: tuple[str, ...]
    result: Path

    @cached_property
    def entry(self) -> ArtifactEntry:
        """The artifact's row in the manifest."""
        return _decode(self.result, ArtifactEntry)


def publish_artifact(project: Project, outcome: Outcome, artifact: ArtifactPlan) -> PublishedArtifact:
    """Publish one artifact of a finished run.

    Raises
    ------
    StoreError
        If its result in the store is damaged. The result is removed, so that the next run makes it again.
    """
    step = outcome.plan.steps[artifact.step]
    spec = step.spec
    assert isinstance(spec, PackSpec)
    try:
        result = project.store.path(step.key)
        summary = _decode(result, ArtifactSummary)
        state = _put_into_dist(project, artifact, summary, step.key, result)
    except (IntegrityError, _DamagedError) as error:
        # The store no longer has what the step wrote; without the result the next run makes it again.
        project.store.discard(step.key)
        hint = "it was removed; run the same command again"
        raise StoreError(
            f"the result of {step.id} is damaged: {error.message}", where=error.where, hint=hint
        ) from error
    seconds = sum(outcome.seconds.get(name, 0.0) for name in outcome.plan.behind(step.id))
    sources = tuple(_describe(source) for source in spec.sources)
    if spec.inputs is not None:
        sources = ("source: " + ", ".join(f"{name} {number}" for name, number in spec.tools.items()), *sources)
    return PublishedArtifact(
        artifact, summary, "built" if step.id in outcome.seconds else state, seconds, sources, result
    )


def remember_published(project: Project, artifact: PublishedArtifact, key: str) -> None:
    """Record the fingerprint of an artifact in `dist/`, so that the next run need not read the manifest."""
    path = _fingerprint_path(project, artifact.plan)
    content = _fingerprint(project, artifact.summary, key)
    if _read(path) != content:
        # If the store cannot be written, the next run reads the manifest; nothing else is lost.
        with suppress(FileError), atomic_path(path) as partial:
            partial.write_text(content)


def _put_into_dist(
    project: Project, artifact: ArtifactPlan, summary: ArtifactSummary, key: str, result: Path
) -> PublishState:
    """Publish an artifact unless its recorded fingerprint, or the manifest, says that it is in `dist/`."""
    if _read(_fingerprint_path(project, artifact)) == _fingerprint(project, summary, key):
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


def _fingerprint_path(project: Project, artifact: ArtifactPlan) -> Path:
    return project.store.root / "records" / f"{artifact.name}.fingerprint"


def _fingerprint(project: Project, summary: ArtifactSummary, key: str) -> str:
    """Return a digest that changes with the artifact's key and when one of its files or lists is touched."""
    names = (summary.file, checksum_name(summary.file), summary.sbom.file, CHECKSUMS, MANIFEST)
    return digest([key, *(identity(project.dist / name) for name in names)])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


class _DamagedError(StoreError):
    """Raised when a result in the store is not what its step wrote."""


def _decode(result: Path, kind: type[T]) -> T:
    try:
        return from_json((result / "entry.json").read_bytes(), kind)
    except (OSError, UnicodeError, msgspec.MsgspecError) as error:
        raise _DamagedError("its entry cannot be read", where=result) from error


def _describe(spec: FetchSpec) -> str:
    return f"{spec.candidate.name}: {spec.candidate.fetch.describe()}"
