"""Show plans and results as tables, JSON, graphs and Markdown."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from macbuild.cli.session import Session
from macbuild.cli.tables import aligned, fold_for, grouped, terminal_width
from macbuild.commands.build import BuildResult
from macbuild.commands.publish import PublishedArtifact
from macbuild.errors import LockError, MacbuildError, UnreachableError, UsageError
from macbuild.plan.model import BuildSpec, FixSpec, Plan, Step
from macbuild.units import duration, size

__all__ = [
    "failure_data",
    "graph",
    "markdown",
    "plan_data",
    "plan_table",
    "result_data",
    "result_table",
    "say_what_is_missing",
]

VERSION = 1


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data."""
    needed = {step.id for step in plan.needed()}
    steps = [
        {
            "id": step.id,
            "kind": step.kind,
            "component": step.component,
            "arch": step.arch,
            "key": step.key,
            "needs": list(step.needs),
            "ingredients": dict(step.ingredients),
            "state": _state(step, needed),
            "reason": step.reason,
        }
        for step in plan.steps.values()
    ]
    artifacts = [
        {
            "name": artifact.name,
            "component": artifact.component,
            "version": artifact.version,
            "target": str(artifact.target),
            "step": artifact.step,
        }
        for artifact in plan.artifacts
    ]
    remarks = list(plan.remarks)
    refused = [{"component": refusal.component, "reason": str(refusal.error)} for refusal in plan.refused]
    return {"version": VERSION, "steps": steps, "artifacts": artifacts, "refused": refused, "remarks": remarks}


def plan_table(session: Session, plan: Plan) -> None:
    """Print a plan for a person: a line per step, grouped by component where the terminal is narrow."""
    needed = {step.id for step in plan.needed()}
    if plan.steps:
        rows = [(step.id, step.key[:12], _state(step, needed), _why(step)) for step in plan.steps.values()]
        lines = aligned([("STEP", "KEY", "STATE", "WHY"), *rows])
        if max(map(len, lines)) > terminal_width():
            details = [(name.rpartition("/")[2], *others) for name, *others in rows]
            lines = grouped([name.rpartition("/")[0] for name, *_ in rows], details)
            # What does not fit even so is the reason: it goes on below itself.
            margin = 2 + len(aligned([(*row[:-1], "x") for row in details])[0]) - 1
            lines = [fold_for(sys.stdout, line, margin) for line in lines]
        _print_lines(lines)
    say_what_is_missing(session, plan, {refusal.component: refusal.error for refusal in plan.refused})
    if not needed:
        session.say("Nothing to do: every result is in the store.")


def say_what_is_missing(session: Session, plan: Plan, left_out: Mapping[str, MacbuildError]) -> None:
    """Say in one line each what is built in part, and which components are left out; `-v` gives the whole reason."""
    whole = session.verbosity > 0
    for remark in plan.remarks:
        session.say(remark if whole else remark.partition(": ")[0])
    for component, error in left_out.items():
        session.say(f"left out: {component}: {error if whole else _short_reason(error)}")
    if (plan.remarks or left_out) and not whole:
        session.say("(-v says why in full)")


def _short_reason(error: MacbuildError) -> str:
    """Return why a component is left out and what to do, for one line of 80 characters."""
    if isinstance(error, LockError):
        # Outside of a project, the command that pins names the one that makes a project.
        command = (error.hint or "").partition(";")[0].rpartition("macbuild ")[2]
        return f"not pinned; run: macbuild {command}" if command else "no source is pinned"
    if isinstance(error, UnreachableError):
        return "no source can be reached; try again, or use --mirror"
    return error.message


def _why(step: Step) -> str:
    """Return why a step would run; nothing for one whose result is in the store, because its state says that."""
    return "" if step.cached else step.reason


def _state(step: Step, needed: set[str]) -> str:
    if step.cached:
        return "in store"
    return "to run" if step.id in needed else "not needed"


def graph(plan: Plan, form: str, *, components: bool = False) -> str:
    """Return the steps, or the components that they belong to, as a graph in DOT or Mermaid."""

    def node(step: str) -> str:
        return step.rpartition("/")[0] if components else step

    nodes: dict[str, tuple[str, bool]] = {}  # what is below the name, and whether it is in the store
    for step in plan.steps.values():
        _, stored = nodes.get(node(step.id), ("", True))
        nodes[node(step.id)] = ("" if components else step.key[:12], stored and step.cached)
    names = {name: f"s{index}" for index, name in enumerate(nodes)}
    pairs = [(node(need), node(step.id)) for step in plan.steps.values() for need in step.needs]
    edges = dict.fromkeys((names[start], names[end]) for start, end in pairs if start != end)
    if form == "dot":
        lines = ["digraph macbuild {", "  rankdir=LR;", "  node [shape=box];"]
        for name, (below, stored) in nodes.items():
            label = "\\n".join(filter(None, (name, below)))
            lines.append(f'  {names[name]} [label="{label}"{", style=filled" if stored else ""}];')
        lines += [f"  {start} -> {end};" for start, end in edges]
        return "\n".join([*lines, "}", ""])
    if form == "mermaid":
        lines = ["flowchart LR"]
        lines += [
            f'  {names[name]}["{"<br>".join(filter(None, (name, below)))}"]' for name, (below, _) in nodes.items()
        ]
        lines += [f"  {start} --> {end}" for start, end in edges]
        return "\n".join([*lines, ""])
    raise UsageError(f"unknown graph format {form!r}", hint="choose from dot, mermaid")


def failure_data(error: MacbuildError) -> dict[str, Any]:
    """Return a build that ended before its first step, in the form of `result_data`."""
    failed = [_failure(None, error)]
    return {
        "version": VERSION,
        "artifacts": [],
        "failed": failed,
        "left_out": [],
        "remarks": [],
        "stages": {},
        "idle": False,
    }


def _failure(step: Step | None, error: MacbuildError, component: str | None = None) -> dict[str, Any]:
    """Return an error with what failed: a step, or else a component that could not be planned."""
    place = {"step": None, "component": component, "arch": None}
    if step is not None:
        place = {"step": step.id, "component": step.component, "arch": step.arch}
    return {**place, "error": str(error), "hint": error.hint}


def result_data(result: BuildResult, dist: Path) -> dict[str, Any]:
    """Return the outcome of a build, whose artifacts are in a folder, as plain data."""
    artifacts = [
        {
            "file": row.summary.file,
            "path": str(dist.absolute() / row.summary.file),
            "component": row.plan.component,
            "version": row.plan.version,
            "arch": row.plan.target.arch,
            "size": row.summary.size,
            "sha256": row.summary.sha256,
            "minimum_macos": row.summary.minimum_macos,
            "state": row.state,
            "seconds": round(row.seconds, 3),
            "sources": list(row.sources),
        }
        for row in result.published
    ]
    steps = result.plan.steps
    failed = [_failure(steps.get(name), error, name) for name, error in result.failed.items()]
    stages = {step: str(path) for step, path in result.stages.items()}
    left_out = [{"component": name, "reason": str(error)} for name, error in result.unreachable.items()]
    return {
        "version": VERSION,
        "artifacts": artifacts,
        "failed": failed,
        "left_out": left_out,
        "remarks": list(result.plan.remarks),
        "stages": stages,
        "idle": result.idle,
    }


def result_table(session: Session, result: BuildResult, *, paths: bool) -> None:
    """Print for a person what a build made.

    Parameters
    ----------
    session
        Where to print.
    result
        The outcome of the build.
    paths
        Print where each stage is, instead of one line about all of them.
    """
    if result.published:
        rows = [_cells(artifact) for artifact in result.published]
        lines = aligned([_COLUMNS, *rows], right=_RIGHT)
        if max(map(len, lines)) > terminal_width():
            details = [_details(artifact) for artifact in result.published]
            lines = grouped([artifact.summary.file for artifact in result.published], details, right=[0])
        _print_lines(lines)
    if paths or session.verbosity > 0:
        _print_lines(f"{step}: {path}" for step, path in result.stages.items())
    elif result.stages:
        _print_lines([_libraries(result)])
    if result.idle:
        session.say("Nothing to do: everything is up to date.")


def _libraries(result: BuildResult) -> str:
    """Return a line about the libraries that were compiled for other components, as in `18 libraries for arm64`."""
    archs = Counter(_arch(result.plan.steps[step]) for step in result.stages)
    first, *others = [
        f"{number} {'library' if number == 1 else 'libraries'} for {arch}" for arch, number in archs.items()
    ]
    compiled = sum(step in result.seconds for step in result.stages)
    kept = len(result.stages) - compiled
    parts = [f"{compiled} compiled" if compiled else "", f"{kept} up to date" if kept else ""]
    return f"{', '.join([first, *others])}: {', '.join(filter(None, parts))}"


def _arch(step: Step) -> str:
    spec = step.spec
    if isinstance(spec, BuildSpec) and spec.target is not None:
        return spec.target.arch
    return spec.arch if isinstance(spec, FixSpec) else "this machine"


_COLUMNS = ("ARTIFACT", "SIZE", "TIME", "MINIMUM MACOS", "SHA256", "STATE", "SOURCE")
_RIGHT = (1, 2)


def _cells(artifact: PublishedArtifact) -> tuple[str, ...]:
    """Return the cells of an artifact's row."""
    summary = artifact.summary
    kinds = ", ".join(sorted({source.split(":", 1)[0] for source in artifact.sources}))
    time = duration(artifact.seconds)
    return (summary.file, _size(artifact), time, summary.minimum_macos, summary.sha256[:16], artifact.state, kinds)


def _details(artifact: PublishedArtifact) -> tuple[str, ...]:
    """Return the details of an artifact for the line below its name, on a narrow terminal."""
    summary = artifact.summary
    state = f"built in {duration(artifact.seconds)}" if artifact.state == "built" else artifact.state
    return (_size(artifact), f"macOS {summary.minimum_macos}", state, f"sha256 {summary.sha256[:16]}")


def _size(artifact: PublishedArtifact) -> str:
    return size(artifact.summary.size)


def _print_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def markdown(result: BuildResult) -> str:
    """Return the artifacts as a Markdown table, for the summary of a job."""
    lines = ["| " + " | ".join(name.lower() for name in _COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cells(artifact)) + " |" for artifact in result.published]
    return "\n".join(lines) + "\n"
