"""`macbuild test` and `macbuild shell`: test a component on this machine, and work in its build folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from macbuild.cli.completion import complete_component
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
    component: Annotated[
        str, typer.Argument(metavar="NAME", help="Component to test.", autocompletion=complete_component)
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- PYTEST...]", help="Arguments for pytest.")
    ] = None,
    *,
    sanitize: Annotated[
        str, typer.Option(metavar="LIST", help="Sanitizers to build with, such as address,undefined.")
    ] = "",
    server: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder with bin/tritonserver, to test in that server.")
    ] = None,
) -> None:
    """Build a component for this machine and run its tests.

    The tests of a backend run in a real server.
    """
    from macbuild.cli.progress import subscribe
    from macbuild.commands.test import prepare_tests

    with subscribe(session) as emit:
        suites = prepare_tests(
            session.project, component, emit, sanitize=sanitize, server=server, arguments=arguments or []
        )
    for suite in suites:
        suite.run()


def _shell(
    session: Session,
    component: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Component whose build folder to enter.", autocompletion=complete_component
        ),
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Command to run instead of a shell.")
    ] = None,
) -> None:
    """Open a shell in the build folder of a component.

    It has the compilers and the variables of the build.
    """
    from macbuild.cli.progress import subscribe
    from macbuild.commands.shell import build_needs, run_in_build_folder

    with subscribe(session) as emit:
        spec, stages = build_needs(session.project, component, emit)
    raise typer.Exit(run_in_build_folder(spec, stages, session.project.context(emit), words or []))
