"""Make results of runs by hand, for the tests of the report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from macbuild.commands.build import BuildResult
from macbuild.commands.publish import ArtifactSummary, PublishedArtifact, PublishState
from macbuild.errors import AuditError, MacbuildError, UnreachableError
from macbuild.events import Status, StepFinished
from macbuild.package.manifest import (
    ArtifactEntry,
    AuditRecord,
    Binary,
    DependencyRecord,
    ExemptedRecord,
    FileRecord,
    FindingRecord,
    PlatformRecord,
    Sidecar,
    SourceFile,
)
from macbuild.plan.model import ArtifactPlan, Plan, Refusal, Step, UnpackSpec
from macbuild.target import Target

HASH = "ab" * 32
KINDS = ("fetch", "unpack", "layout", "fix", "audit", "pack")
HOSTILE = (
    "lib/<script>alert(1)</script>.dylib",
    'include/"><img src=x onerror=alert(1)>.h',
    "include/</svg><style>*{display:none}</style>",
    "include/right\u202eto-left&amp;\x00\x1b[31m.h",
    f"include/{'x' * 5000}.h",
)


def step(track: str, kind: str, needs: Sequence[str], *, cached: bool = False, reason: str = "first time") -> Step:
    spec = UnpackSpec()
    key = f"{track}{kind}".encode().hex()[:64].ljust(64, "0")
    return Step(f"{track}/{kind}", kind, key, {}, tuple(needs), spec, cached, reason)  # type: ignore[arg-type]


def chain(track: str, *, cached: bool = False) -> dict[str, Step]:
    """Return the steps of a thin artifact, as the planner makes them."""
    steps = {f"{track}/fetch": step(track, "fetch", [], cached=cached)}
    for before, kind in pairwise(KINDS):
        needs = [f"{track}/{before}"] if kind != "pack" else [f"{track}/fix", f"{track}/audit"]
        steps[f"{track}/{kind}"] = step(track, kind, needs, cached=cached)
    return steps


def event(name: str, started: float, seconds: float, status: Status = "built", detail: str = "") -> StepFinished:
    return StepFinished(name, HASH, status, started, seconds, detail)


def records(count: int) -> list[FileRecord]:
    """Return the shape of LibTorch: one huge file, some libraries, thousands of headers, a link."""
    files = [FileRecord(path=f"include/ATen/ops/op_{index}.h", size=2000 + index % 900) for index in range(count)]
    files += [
        FileRecord(path=f"include/torch/csrc/part{index % 9}/{index}.h", size=4000) for index in range(count // 8)
    ]
    files += [
        FileRecord(path="lib/libtorch_cpu.dylib", size=338_000_000),
        FileRecord(path="lib/libc10.dylib", size=1_100_000),
        FileRecord(path="lib/libtorch.dylib", size=16_800),
        FileRecord(path="lib/libtorch.1.dylib", link="libtorch.dylib"),
        FileRecord(path="LICENSE", size=9000),
    ]
    return files


def entry(name: str, files: Sequence[FileRecord], findings: Sequence[FindingRecord] = ()) -> ArtifactEntry:
    exempted = ExemptedRecord(
        rule="arch-missing",
        severity="error",
        file="lib/libomp.dylib",
        slice="x86_64",
        message="no x86_64",
        reason="why so",
    )
    return ArtifactEntry(
        file=f"{name}.tar.gz",
        size=83_000_000,
        sha256=HASH,
        component="libtorch",
        distribution="libtorch",
        component_version="2.13.0",
        target=PlatformRecord(os="macos", arch="arm64", deployment="14.0"),
        minimum_macos="14.0",
        files=list(files),
        binaries=[
            Binary(
                path="lib/libtorch_cpu.dylib",
                install_name="@rpath/libtorch_cpu.dylib",
                archs=["arm64"],
                needs=["/usr/lib/libSystem.B.dylib", "@rpath/libc10.dylib"],
            )
        ],
        dependencies=[
            DependencyRecord(name="/System/Library/Frameworks/Metal.framework/Versions/A/Metal", kind="system"),
            DependencyRecord(name="/usr/lib/libSystem.B.dylib", kind="system"),
            DependencyRecord(name="torch", kind="component", version="2.13.0"),
        ],
        sources=[
            SourceFile(
                name="arm64 wheel", provider="wheel", request="wheel torch==2.13.0", file="t.whl", size=111, sha256=HASH
            )
        ],
        tools={"macbuild": "1.0"},
        audit=AuditRecord(policy="release", ok=True, findings=list(findings), exempted=[exempted]),
        sbom=Sidecar(file=f"{name}.cdx.json", size=10, sha256=HASH),
    )


def finding(severity: str, file: str, message: str = "strings name folders of a build machine") -> FindingRecord:
    return FindingRecord(
        rule="build-path",
        severity=severity,
        file=file,
        slice="arm64",
        message=message,
        hint="compile with a prefix map",
    )


def artifact(name: str, component: str) -> ArtifactPlan:
    return ArtifactPlan(name, component, "2.13.0", Target("arm64", "14.0"), f"{name}/pack")


def made(
    folder: Path, name: str, row: ArtifactEntry, state: PublishState = "built", seconds: float = 16.7
) -> PublishedArtifact:
    """Return an artifact whose entry is in a folder, as in the store."""
    result = folder / name
    result.mkdir(parents=True, exist_ok=True)
    (result / "entry.json").write_bytes(msgspec.json.encode(row))
    summary = ArtifactSummary(row.file, row.size, row.sha256, row.minimum_macos, row.sbom)
    return PublishedArtifact(artifact(name, "libtorch"), summary, state, seconds, ("wheel: torch",), result)


def successful(folder: Path, count: int = 10_000) -> tuple[BuildResult, list[StepFinished]]:
    """Return a run like one of LibTorch and ONNX Runtime, with hostile names in it."""
    one, two = "libtorch-2.13.0-macos-arm64", "onnxruntime-1.30.0-macos-arm64"
    plan = Plan(chain(one) | chain(two), (artifact(one, "libtorch"), artifact(two, "onnxruntime")))
    steps = [event(f"{one}/fetch", 100.0, 1.0, "failed")]
    steps += [event(f"{one}/{kind}", 101.0 + 3 * index, 3.0, detail="done") for index, kind in enumerate(KINDS)]
    steps += [event(f"{two}/{kind}", 100.0 + 2 * index, 2.0) for index, kind in enumerate(KINDS[:5])]
    steps.append(event(f"{two}/pack", 110.0, 0.004, "cached"))
    hostile = [FileRecord(path=path, size=40_000 * (1 + index)) for index, path in enumerate(HOSTILE)]
    found = [finding(severity, path, f"{path} is bad") for severity in ("info", "warning") for path in HOSTILE]
    rows = (
        made(folder, one, entry(one, [*records(count), *hostile], found)),
        made(folder, two, entry(two, [FileRecord(path="lib/libonnxruntime.dylib", size=33_000_000)])),
    )
    return BuildResult(plan, rows, {}, {}), steps


def failed(home: Path) -> tuple[BuildResult, list[StepFinished]]:
    """Return a run in which an audit failed and a component was left out."""
    one = "libtorch-2.13.0-macos-arm64"
    unreachable = UnreachableError("no source is available", where="onnxruntime 1.30.0 arm64", hint="go online")
    plan = Plan(chain(one), (artifact(one, "libtorch"),), (Refusal("onnxruntime", unreachable),))
    steps = [event(f"{one}/{kind}", 100.0 + index, 1.0) for index, kind in enumerate(KINDS[:4])]
    steps.append(event(f"{one}/audit", 104.0, 0.5, "failed"))
    error: MacbuildError = AuditError(
        "the release policy rejects the stage: " + "; ".join(f"{path}: bad" for path in HOSTILE),
        where=home / "store" / "results",
        hint=f"see all findings with: macbuild audit {home}/store/results/stage",
    )
    return BuildResult(plan, (), {f"{one}/audit": error}, {"onnxruntime": unreachable}), steps


def idle(folder: Path) -> tuple[BuildResult, list[StepFinished]]:
    """Return a run that had nothing to do."""
    one = "libtorch-2.13.0-macos-arm64"
    plan = Plan(chain(one, cached=True), (artifact(one, "libtorch"),))
    return BuildResult(plan, (made(folder, one, entry(one, records(50)), "up to date", 0.0),), {}, {}), []
