"""Test tables for a person: they fit a terminal of 80 columns, and use one line per row if there is room."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from macbuild.cli import show
from macbuild.cli.session import Session
from macbuild.commands.build import BuildResult
from macbuild.config import Settings
from macbuild.errors import LockError, UnreachableError
from macbuild.plan.model import FixSpec, Plan, Step
from macbuild.recipe.model import FixRules
from tests.support import reports
from tests.support.sample import Sample

LONG = "tritonserver_backend_onnxruntime-0.1.0-py3-none-macosx_11_0_universal2"
URL = "https://github.com/grpc/grpc/archive/refs/tags/v1.81.1.tar.gz"


def fix_step(name: str, arch: str = "arm64") -> Step:
    identity = f"{name}-1.0-macos-{arch}/fix"
    return Step(identity, "fix", "0" * 64, {}, (), FixSpec(FixRules(), arch), cached=False, reason="first time")


def result(folder: Path, *, compiled: int = 0, archs: tuple[str, ...] = ("arm64",)) -> BuildResult:
    """Return a build with one artifact, three libraries of which some were compiled, and omissions."""
    steps = [fix_step(name, arch) for name in ("abseil", "protobuf", "zlib") for arch in archs]
    plan = Plan(reports.chain(LONG) | {step.id: step for step in steps}, (reports.artifact(LONG, "backend"),))
    plan = msgspec.structs.replace(plan, remarks=(f"tritonserver is made without grpc: {URL} is not pinned",))
    row = reports.made(folder, LONG, reports.entry(LONG, reports.records(3)), seconds=1234.5)
    left_out = {
        "grpc": LockError(
            f"no source is pinned: archive ({URL}) is not pinned",
            where="grpc 1.81.1 any",
            hint="run: macbuild init && macbuild lock grpc; or use a folder of your own: --source grpc=FOLDER",
        ),
        "identity_backend": UnreachableError(f"no source can be reached: {URL} answers with 404", where="identity"),
    }
    stages = {step.id: folder / "results" / ("f" * 64) / "stage" for step in steps}
    seconds = {step.id: 1.0 for step in steps[:compiled]}
    return BuildResult(plan, (row,), {}, left_out, stages, seconds)


def shown(
    built: BuildResult,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    columns: int,
    verbosity: int = 0,
    paths: bool = False,
) -> tuple[list[str], list[str]]:
    """Return the lines on standard output and on standard error."""
    monkeypatch.setenv("COLUMNS", str(columns))
    session = Session(Settings(), verbosity)
    show.result_table(session, built, paths=paths)
    show.say_what_is_missing(session, built.plan, built.unreachable)
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


def test_result_fits_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = shown(result(tmp_path), monkeypatch, capsys, columns=80)
    assert max(map(len, out + err)) <= 80
    file, details, libraries = out
    assert file == f"{LONG}.tar.gz"
    assert details.split() == ["83.0", "MB", "macOS", "14.0", "built", "in", "20", "min", "34", "s", "sha256", "ab" * 8]
    assert libraries == "3 libraries for arm64: 3 up to date"


def test_result_is_one_row_per_artifact_at_200_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head, row, _ = shown(result(tmp_path), monkeypatch, capsys, columns=200)[0]
    assert head.split() == ["ARTIFACT", "SIZE", "TIME", "MINIMUM", "MACOS", "SHA256", "STATE", "SOURCE"]
    assert row.startswith(f"{LONG}.tar.gz  83.0 MB  20 min 34 s  14.0")
    assert row.index("14.0") == head.index("MINIMUM")


def test_libraries_are_counted_by_architecture_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = result(tmp_path, compiled=2, archs=("x86_64", "arm64"))
    *_, line = shown(built, monkeypatch, capsys, columns=80)[0]
    assert line == "3 libraries for x86_64, 3 libraries for arm64: 2 compiled, 4 up to date"


@pytest.mark.parametrize(("verbosity", "paths"), [(1, False), (0, True)])
def test_paths_of_stages_are_shown_on_request(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    verbosity: int,
    paths: bool,
) -> None:
    built = result(tmp_path)
    out = shown(built, monkeypatch, capsys, columns=80, verbosity=verbosity, paths=paths)[0]
    assert out[-3:] == [f"{step}: {path}" for step, path in built.stages.items()]


def test_omissions_are_short_lines_and_full_texts_with_v(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = result(tmp_path)
    assert shown(built, monkeypatch, capsys, columns=80)[1] == [
        "tritonserver is made without grpc",
        "left out: grpc: not pinned; run: macbuild lock grpc",
        "left out: identity_backend: no source can be reached; try again, or use --mirror",
        "(-v says why in full)",
    ]
    whole = shown(built, monkeypatch, capsys, columns=80, verbosity=1)[1]
    assert whole[1] == f"left out: grpc: {built.unreachable['grpc']}"
    assert len(whole) == 3


@pytest.mark.parametrize(("columns", "head"), [(80, f"{LONG}"), (200, "STEP")])
def test_plan_is_grouped_by_component_if_it_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, columns: int, head: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    show.plan_table(Session(Settings()), Plan(reports.chain(LONG), (reports.artifact(LONG, "backend"),)))
    first, second, *_ = lines = capsys.readouterr().out.splitlines()
    assert first.split()[0] == head
    assert max(map(len, lines)) <= columns
    assert ("  fetch " if columns == 80 else f"{LONG}/fetch ") == second[: second.index(" ", 2) + 1]


def test_long_reasons_of_a_plan_go_on_below_themselves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    steps = reports.chain(LONG)
    reason = ", ".join(f"input {kind} changed" for kind in (*reports.KINDS, *reports.KINDS))
    steps = {name: msgspec.structs.replace(step, reason=reason) for name, step in steps.items()}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show.plan_table(Session(Settings()), Plan(steps, ()))
    _, first, second, third, *_ = lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    column = first.index("input")
    assert all(line[:column].isspace() and line[column:].startswith("input") for line in (second, third))


def test_stored_steps_are_named_as_such_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    steps = {
        name: msgspec.structs.replace(step, reason="in store")
        for name, step in reports.chain("alpha", cached=True).items()
    }
    show.plan_table(Session(Settings()), Plan(steps, ()))
    assert all(line.count("in store") == 1 for line in capsys.readouterr().out.splitlines()[1:])


@pytest.mark.parametrize(("form", "arrow"), [("dot", "->"), ("mermaid", "-->")])
def test_graph_of_components_has_one_node_for_each(tmp_path: Path, form: str, arrow: str) -> None:
    sample = Sample(tmp_path)
    files = {"CMakeLists.txt": "project(x)\n"}
    sample.add_built("alpha", files)
    sample.add_built("beta", files, facts={"needs": ["alpha"]})
    text = show.graph(sample.plan("beta"), form, components=True)
    names = dict(re.findall(r'(s\d+) ?\[(?:label=)?"(\S+?)"', text))
    edges = [(names[start], names[end]) for start, end in re.findall(rf"(s\d+) {arrow} (s\d+)", text)]
    assert ("alpha-1.0-macos-arm64", "beta-1.0-macos-arm64") in edges
    assert all(start != end for start, end in edges)
    assert len(set(names.values())) == len(names)
