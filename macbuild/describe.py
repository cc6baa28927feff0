"""Describe a packed artifact: what the manifest says of it, gathered from the plan, the stage and the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import macbuild
from macbuild.macho.file import open_macho
from macbuild.package.manifest import (
    Audit,
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
    spec: PackSpec, stage: Path, report: Mapping[str, Any], records: Sequence[FileRecord], *, size: int, sha256: str
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
    size, sha256
        Of the artifact, in bytes and hexadecimal digits.
    """
    return Contents(
        file=f"{spec.name}.tar.gz",
        size=size,
        sha256=sha256,
        component=spec.recipe.name,
        component_version=spec.version,
        target=Platform(os="macos", arch=spec.target.arch, deployment=spec.target.deployment),
        minimum_macos=report["minimum_macos"],
        files=list(records),
        dependencies=_system_dependencies(stage, records),
        sources=[_source(source) for source in spec.sources],
        tools={"macbuild": macbuild.__version__, "zlib-ng": version("zlib-ng")},
        audit=Audit(
            policy=report["policy"],
            ok=report["ok"],
            findings=[Finding(**_finding(row)) for row in report["findings"]],
            exempted=[Exempted(**_finding(row), reason=row["reason"]) for row in report["exempted"]],
        ),
    )


def _system_dependencies(stage: Path, records: Sequence[FileRecord]) -> list[Dependency]:
    names: set[str] = set()
    for record in records:
        path = stage / record.path
        if record.link is None and is_loadable(path):
            with open_macho(path) as file:
                names |= {dylib.name for image in file.images for dylib in image.dylibs if is_system(dylib.name)}
    return [Dependency(name=name, kind="system") for name in sorted(names)]


def _source(spec: FetchSpec) -> SourceFile:
    pin = spec.pin
    return SourceFile(
        name=f"{spec.ref.arch} {spec.candidate.name}",
        provider=spec.ref.request.split(" ", 1)[0],
        request=spec.ref.request,
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
