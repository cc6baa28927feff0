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
    paths = [record.path for record in records if record.link is None and is_loadable(stage / record.path)]
    binaries = [_binary(stage, path) for path in paths]
    system = sorted({name for binary in binaries for name in binary.needs if is_system(name)})
    return Contents(
        file=f"{spec.name}.tar.gz",
        size=size,
        sha256=sha256,
        component=spec.recipe.name,
        component_version=spec.version,
        target=Platform(os="macos", arch=spec.target.arch, deployment=spec.target.deployment),
        minimum_macos=report["minimum_macos"],
        files=list(records),
        binaries=binaries,
        dependencies=[Dependency(name=name, kind="system") for name in system],
        sources=[_source(source) for source in spec.sources],
        tools={"macbuild": macbuild.__version__, "zlib-ng": version("zlib-ng")},
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
