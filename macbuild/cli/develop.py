"""Commands of who works on a component: test it on the machine at hand, look into its build folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session

__all__ = ["register"]

_BUILD = ("recipes", "lock", "jobs", "offline", "mirrors", "sources", "wanted_options", "unwanted_options")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "test", _BUILD)(_test)
    command(app, "shell", ("arch", "deployment_target", "toolchain", *_BUILD))(_shell)


def _test(
    session: Session,
    component: Annotated[str, typer.Argument(metavar="NAME", help="Component to test.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- PYTEST...]", help="For pytest.")] = None,
    *,
    sanitize: Annotated[str, typer.Option(metavar="LIST", help="Sanitizers, as address,undefined.")] = "",
    server: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A folder with bin/tritonserver.")] = None,
) -> None:
    """Build a component for this machine and run its tests, in a real server if it is a backend."""
    from macbuild.cli.progress import subscribe  # noqa: PLC0415 - other commands start without
    from macbuild.hosttest import prepare_tests  # noqa: PLC0415

    with subscribe(session) as emit:
        suites = prepare_tests(
            session.project, component, emit, sanitize=sanitize, server=server, arguments=arguments or []
        )
    for suite in suites:
        suite.run()


def _shell(
    session: Session,
    component: Annotated[str, typer.Argument(metavar="NAME", help="Component whose build to look into.")],
    words: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Run it, not a shell.")] = None,
) -> None:
    """Open a shell in a component's build folder, with the compilers and variables of its build."""
    from macbuild.cli.progress import subscribe  # noqa: PLC0415 - other commands start without
    from macbuild.compile import enter  # noqa: PLC0415
    from macbuild.make import make_needs  # noqa: PLC0415

    with subscribe(session) as emit:
        spec, stages = make_needs(session.project, component, emit)
    raise typer.Exit(enter(spec, stages, session.project.context(emit), words or []))
