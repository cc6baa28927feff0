"""Describe a packed artifact: what the manifest says of it, gathered from the plan, the stage and the audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import macbuild
from macbuild.macho.file import open_macho
from macbuild.package.manifest import (
    Audit,
    Binary,
    Contents,
    Dependency,
    Exempted,
    FileRecord,
    Finding,
    Platform,
    SourceFile,
)
from macbuild.plan import FetchSpec, PackSpec
from macbuild.repair import is_loadable, is_system

__all__ = ["describe"]


def describe(
    spec: PackSpec,
    stage: Path,
    report: Mapping[str, Any],
    records: Sequence[FileRecord],
    *,
    file: str = "artifact",
    size: int = 0,
    sha256: str = "0" * 64,
) -> Contents:
    """Return the description of an artifact.

    Parameters
    ----------
    spec
        What was packed.
    stage
        The tree that was packed, for its dependencies.
    report
        The audit report of the stage as plain data.
    records
        Files of the stage.
    file, size, sha256
        Of the artifact: its name, bytes and hexadecimal digits; not known to what lies inside it.
    """
    paths = [record.path for record in records if record.link is None and is_loadable(stage / record.path)]
    binaries = [_binary(stage, path) for path in paths]
    return Contents(
        file=file,
        size=size,
        sha256=sha256,
        component=spec.recipe.name,
        component_version=spec.version,
        distribution=spec.package,
        target=Platform(os="macos", arch=spec.target.arch, deployment=spec.target.deployment),
        minimum_macos=report["minimum_macos"],
        files=list(records),
        binaries=binaries,
        dependencies=list(_dependencies(spec, binaries, records)),
        sources=[*_own_source(spec), *(_source(source) for source in spec.sources)],
        tools={"macbuild": macbuild.__version__, "zlib-ng": version("zlib-ng"), **spec.tools},
        audit=Audit(
            policy=report["policy"],
            ok=report["ok"],
            findings=[Finding(**_finding(row)) for row in report["findings"]],
            exempted=[Exempted(**_finding(row), reason=row["reason"]) for row in report["exempted"]],
        ),
    )


def _binary(stage: Path, path: str) -> Binary:
    with open_macho(stage / path) as file:
        return Binary(
            path=path,
            install_name=next((image.id.name for image in file.images if image.id), None),
            archs=list(file.archs),
            needs=sorted({dylib.name for image in file.images for dylib in image.dylibs}),
        )


def _dependencies(spec: PackSpec, binaries: Sequence[Binary], records: Sequence[FileRecord]) -> Iterator[Dependency]:
    """Yield what the artifact needs and does not hold: of macOS, of other components, and of the loading process."""
    inside = {PurePosixPath(record.path).name for record in records}
    names = sorted({name for binary in binaries for name in binary.needs})
    for name in names:
        if is_system(name):
            yield Dependency(name=name, kind="system")
        elif PurePosixPath(name).name not in inside:
            yield Dependency(name=name, kind="external")
    for name, number in spec.leans_on:
        yield Dependency(name=name, kind="component", version=number)


def _own_source(spec: PackSpec) -> Iterator[SourceFile]:
    if spec.inputs is not None:
        size, sha256 = spec.inputs
        request = f"project {spec.package}=={spec.version}"
        file = f"recipes/{spec.recipe.name}"
        yield SourceFile(name="source", provider="project", request=request, file=file, size=size, sha256=sha256)


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
        "hint": row["mend"],
    }
