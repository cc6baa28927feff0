"""Describe a packed artifact for the manifest, from the plan, the stage and the audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any

import macbuild
from macbuild.macho.file import ParsedFile
from macbuild.macho.system import is_system
from macbuild.package.manifest import (
    ArtifactContents,
    AuditRecord,
    Binary,
    DependencyRecord,
    ExemptedRecord,
    FileRecord,
    FindingRecord,
    PlatformRecord,
    SourceFile,
)
from macbuild.plan.model import FetchSpec, PackSpec

__all__ = ["describe", "describe_binary"]


def describe(
    spec: PackSpec,
    report: Mapping[str, Any],
    records: Sequence[FileRecord],
    binaries: Sequence[Binary],
    *,
    file: str = "artifact",
    size: int = 0,
    sha256: str = "0" * 64,
) -> ArtifactContents:
    """Return the description of an artifact.

    Parameters
    ----------
    spec
        The packed artifact.
    report
        The audit report of the stage as plain data.
    records
        Files of the stage.
    binaries
        Those of them that the loader takes, from `describe_binary`.
    file, size, sha256
        Of the artifact: its name, bytes and hexadecimal digits; what lies inside the artifact does not know them.
    """
    return ArtifactContents(
        file=file,
        size=size,
        sha256=sha256,
        component=spec.recipe.name,
        component_version=spec.version,
        distribution=spec.package,
        target=PlatformRecord(os="macos", arch=spec.target.arch, deployment=spec.target.deployment),
        minimum_macos=report["minimum_macos"],
        files=list(records),
        binaries=list(binaries),
        dependencies=list(_dependencies(spec, binaries, records)),
        sources=[*_own_source(spec), *(_source(source) for source in spec.sources)],
        tools={"macbuild": macbuild.__version__, "zlib-ng": version("zlib-ng"), **spec.tools},
        audit=AuditRecord(
            policy=report["policy"],
            ok=report["ok"],
            findings=[FindingRecord(**_finding(row)) for row in report["findings"]],
            exempted=[ExemptedRecord(**_finding(row), reason=row["reason"]) for row in report["exempted"]],
        ),
    )


def describe_binary(path: str, file: ParsedFile) -> Binary:
    """Return the row of a file that the loader takes; `path` is relative to the stage."""
    return Binary(
        path=path,
        install_name=next((image.id.name for image in file.images if image.id), None),
        archs=list(file.archs),
        needs=sorted({dylib.name for image in file.images for dylib in image.dylibs}),
    )


def _dependencies(
    spec: PackSpec, binaries: Sequence[Binary], records: Sequence[FileRecord]
) -> Iterator[DependencyRecord]:
    """Yield what the artifact needs but does not hold: of macOS, of other components, and of the loading process."""
    inside = {PurePosixPath(record.path).name for record in records}
    names = sorted({name for binary in binaries for name in binary.needs})
    for name in names:
        if is_system(name):
            yield DependencyRecord(name=name, kind="system")
        elif PurePosixPath(name).name not in inside:
            yield DependencyRecord(name=name, kind="external")
    for name, number in spec.depends_on:
        yield DependencyRecord(name=name, kind="component", version=number)


def _own_source(spec: PackSpec) -> Iterator[SourceFile]:
    if spec.inputs is not None:
        size, sha256 = spec.inputs
        request = f"project {spec.package}=={spec.version}"
        name = spec.recipe.name
        yield SourceFile(name="source", provider="project", request=request, file=name, size=size, sha256=sha256)


def _source(spec: FetchSpec) -> SourceFile:
    pin = spec.pin
    return SourceFile(
        name=f"{spec.ref.arch} {spec.candidate.name}",
        provider=spec.ref.request.split(" ", 1)[0],
        request=spec.candidate.fetch.request() if spec.pin.commit else spec.ref.request,
        file=pin.file,
        size=pin.size,
        sha256=pin.sha256,
    )


def _finding(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rule": row["rule"],
        "severity": row["severity"],
        "file": row["file"],
        "slice": row["slice"],
        "message": row["message"],
        "hint": row["hint"],
    }
