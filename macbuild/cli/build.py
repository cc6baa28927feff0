"""`macbuild all`, `build`, `plan` and `graph`: show what would run, and build."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from macbuild.cli import show
from macbuild.cli.completion import complete_component
from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.commands.build import BuildResult, build
from macbuild.errors import MacbuildError
from macbuild.files import os_errors
from macbuild.plan.model import Plan

__all__ = ["register"]

_OWN = ("sources", "wanted_options", "unwanted_options")
_PLAN = ("arch", "deployment_target", "toolchain", "recipes", "lock", "offline", "skip_unreachable", "policy", *_OWN)
_BUILD = (*_PLAN, "jobs", "dist", "mirrors", "keep_going")

Components = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME[@VERSION]]...", help="Components (default: as for `all`).", autocompletion=complete_component
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Show the plan and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write an HTML page about the run.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "all", _BUILD)(_all)
    command(app, "build", _BUILD)(_build)
    command(app, "plan", _PLAN)(_plan)
    command(app, "graph", _PLAN)(_graph)


def _all(session: Session, *, dry_run: DryRun = False, json: Json = False, report: Report = None) -> None:
    """Build all components and put their artifacts into dist/.

    These are the components of the project, or of macbuild if it has none.
    """
    _run_build(session, [], dry_run=dry_run, json=json, report=report)


def _build(
    session: Session,
    components: Annotated[
        list[str],
        typer.Argument(metavar="NAME[@VERSION]...", help="Components to build.", autocompletion=complete_component),
    ],
    *,
    dry_run: DryRun = False,
    no_pack: Annotated[bool, typer.Option("--no-pack", help="Make no packages; say where the stages are.")] = False,
    json: Json = False,
    report: Report = None,
) -> None:
    """Build some components and put their artifacts into dist/."""
    _run_build(session, components, dry_run=dry_run, json=json, report=report, pack=not no_pack)


def _plan(session: Session, components: Components = None, *, json: Json = False) -> None:
    """Show each step, its key, and why it would run."""
    _show_plan(session, _planned(session, components or []), json=json)


def _graph(
    session: Session,
    components: Components = None,
    *,
    form: Annotated[str, typer.Option("--format", metavar="{dot,mermaid}", help="Language of the graph.")] = "dot",
    by_component: Annotated[bool, typer.Option("--components", help="Show components instead of their steps.")] = False,
) -> None:
    """Write the graph of the steps, for Graphviz or Mermaid.

    What is in the store is filled.
    """
    plan = _planned(session, components or [])
    typer.echo(show.graph(plan, form, components=by_component), nl=False)


def _planned(session: Session, components: list[str], *, pack: bool = True) -> Plan:
    project = session.project
    unavailable: dict[str, MacbuildError] = {}
    return project.planner(unavailable).plan(project.request(components, pack=pack))


def _show_plan(session: Session, plan: Plan, *, json: bool) -> None:
    if json:
        session.print_json(show.plan_data(plan))
    else:
        show.plan_table(session, plan)


def _run_build(
    session: Session, components: list[str], *, dry_run: bool, json: bool, report: Path | None, pack: bool = True
) -> None:
    if dry_run:
        _show_plan(session, _planned(session, components, pack=pack), json=json)
        return
    from macbuild.cli.progress import Recorder, subscribe

    recorder = Recorder()
    try:
        with subscribe(session, recorder) as emit:
            result = build(session.project, components, emit, pack=pack)
    except MacbuildError as error:
        if json:
            session.print_json(show.failure_data(error))
        raise
    if json:
        session.print_json(show.result_data(result, session.project.dist))
    else:
        show.result_table(session, result, paths=bool(components))
    _summarize(result)
    if report is not None:
        from macbuild.cli.report import write_report

        write_report(report, result, recorder.steps)
    _finish(session, result)


def _finish(session: Session, result: BuildResult) -> None:
    """Say what failed or was left out, and raise the first failure."""
    show.say_what_is_missing(session, result.plan, result.unreachable)
    if not result.failed:
        return
    first, *others = result.failed.values()
    for other in others:
        session.say(f"also failed: {other}")
    raise first


def _summarize(result: BuildResult) -> None:
    """Add the table to the summary of a GitHub job, if this is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with os_errors(path), Path(path).open("a", encoding="utf-8") as file:
            file.write(show.markdown(result))
