"""Plans and results as tables, JSON, graphs and Markdown."""

from __future__ import annotations

from typing import Any

from macbuild.cli.session import Session
from macbuild.data import nearest
from macbuild.errors import UsageError
from macbuild.make import Made, Result
from macbuild.plan import Plan, Step

__all__ = ["graph", "markdown", "plan_data", "plan_table", "result_data", "result_table"]

VERSION = 1


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data."""
    needed = {step.id for step in plan.needed()}
    steps = [
        {
            "id": step.id,
            "kind": step.kind,
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
    """Print a plan for a person."""
    from rich.table import Table  # noqa: PLC0415 - JSON needs no table

    needed = {step.id for step in plan.needed()}
    table = Table(box=None, pad_edge=False)
    for column in ("STEP", "KEY", "STATE", "WHY"):
        table.add_column(column, overflow="fold")
    for step in plan.steps.values():
        table.add_row(step.id, step.key[:12], _state(step, needed), step.reason)
    session.out.print(table)
    for remark in plan.remarks:
        session.say(remark)
    for refusal in plan.refused:
        session.say(f"left out: {refusal.component}: {refusal.error}")
    if not needed:
        session.say("Nothing to do: every result is in the store.")


def _state(step: Step, needed: set[str]) -> str:
    if step.cached:
        return "in store"
    return "to run" if step.id in needed else "not needed"


def graph(plan: Plan, form: str) -> str:
    """Return the steps as a graph in DOT or Mermaid."""
    names = {step: f"s{index}" for index, step in enumerate(plan.steps)}
    edges = [(names[need], names[step.id]) for step in plan.steps.values() for need in step.needs]
    if form == "dot":
        lines = ["digraph macbuild {", "  rankdir=LR;", "  node [shape=box];"]
        lines += [
            f'  {names[step.id]} [label="{step.id}\\n{step.key[:12]}"{", style=filled" if step.cached else ""}];'
            for step in plan.steps.values()
        ]
        lines += [f"  {start} -> {end};" for start, end in edges]
        return "\n".join([*lines, "}", ""])
    if form == "mermaid":
        lines = ["flowchart LR"]
        lines += [f'  {names[step.id]}["{step.id}<br>{step.key[:12]}"]' for step in plan.steps.values()]
        lines += [f"  {start} --> {end}" for start, end in edges]
        return "\n".join([*lines, ""])
    raise UsageError(f"unknown graph format {form!r}", hint=nearest(form, ["dot", "mermaid"]))


def result_data(result: Result) -> dict[str, Any]:
    """Return what was made as plain data."""
    made = [
        {
            "file": row.head.file,
            "size": row.head.size,
            "sha256": row.head.sha256,
            "minimum_macos": row.head.minimum_macos,
            "state": row.state,
            "seconds": round(row.seconds, 3),
            "sources": list(row.sources),
        }
        for row in result.made
    ]
    failed = [{"step": step, "error": str(error), "hint": error.hint} for step, error in result.failed.items()]
    stages = {step: str(path) for step, path in result.stages.items()}
    left_out = [{"component": name, "reason": str(error)} for name, error in result.unreachable.items()]
    return {
        "version": VERSION,
        "artifacts": made,
        "failed": failed,
        "left_out": left_out,
        "remarks": list(result.plan.remarks),
        "stages": stages,
        "idle": result.idle,
    }


def result_table(session: Session, result: Result) -> None:
    """Print what was made for a person."""
    if result.made:
        from rich.table import Table  # noqa: PLC0415 - JSON needs no table

        table = Table(box=None, pad_edge=False)
        for column in _COLUMNS:
            table.add_column(column, overflow="fold", justify="right" if column in {"SIZE", "TIME"} else "left")
        for row in result.made:
            table.add_row(*_cells(row))
        session.out.print(table)
    for step, path in result.stages.items():
        session.out.print(f"{step}: {path}", soft_wrap=True)
    if result.idle:
        session.say("Nothing to do: everything is up to date.")


_COLUMNS = ("ARTIFACT", "SIZE", "TIME", "MINIMUM MACOS", "SHA256", "STATE", "SOURCE")


def _cells(row: Made) -> tuple[str, ...]:
    size = f"{row.head.size / 1e6:.1f} MB"
    kinds = ", ".join(sorted({source.split(":", 1)[0] for source in row.sources}))
    time = f"{row.seconds:.1f} s"
    return (row.head.file, size, time, row.head.minimum_macos, row.head.sha256[:16], row.state, kinds)


def markdown(result: Result) -> str:
    """Return what was made as a Markdown table, for the summary of a job."""
    lines = ["| " + " | ".join(name.lower() for name in _COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in result.made]
    return "\n".join(lines) + "\n"
