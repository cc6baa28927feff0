"""Commands from functions: each gets the settings it names as flags, and the flags that all commands have."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from macbuild.cli.session import Session
from macbuild.config import Setting, load_settings, setting
from macbuild.errors import MacbuildError

__all__ = ["ALWAYS", "INTERRUPTED", "command"]

INTERRUPTED = 130

ALWAYS = ("cache_dir", "color", "log_format")
_LETTERS = {"jobs": "-j", "keep_going": "-k", "arch": "-a"}
_COMMON: tuple[tuple[str, Any, Any], ...] = (
    ("verbose", Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice for all.")], 0),
    ("quiet", Annotated[int, typer.Option("--quiet", "-q", count=True, help="Say less; twice for nothing.")], 0),
    ("debug_traceback", Annotated[bool, typer.Option("--debug-traceback", help="Show where an error arose.")], False),
)


def command(
    app: typer.Typer,
    name: str,
    settings: Sequence[str] = (),
    **extra: Any,  # noqa: ANN401 - passed on to Typer
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a command of a function whose first parameter is the session.

    Parameters
    ----------
    app
        The Typer application.
    name
        Name of the command.
    settings
        Names of the settings that the command has flags for.
    extra
        For `typer.Typer.command`.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        names = [*settings, *ALWAYS]
        parameters = [*own, *(_parameter(setting(entry)) for entry in names)]
        parameters += [_keyword(entry, kind, default) for entry, kind, default in _COMMON]

        def run(**values: Any) -> None:  # noqa: ANN401 - whatever the parameters above are
            flags = {entry: value for entry in names if _was_given(value := values.pop(entry))}
            common = {entry: values.pop(entry) for entry, _, _ in _COMMON}
            verbosity = common["verbose"] - common["quiet"]
            _run(lambda session: function(session, **values), flags, verbosity, show_trace=common["debug_traceback"])

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
        app.command(name, help=inspect.getdoc(function), **extra)(run)
        return function

    return register


def _was_given(value: object) -> bool:
    """Whether a flag was on the command line; 0 and the empty text were."""
    return value is not None and value is not False and value != []


def _run(function: Callable[[Session], None], flags: Mapping[str, object], verbosity: int, *, show_trace: bool) -> None:
    """Call a command with its session; an error becomes a message in the form that the settings ask for."""
    session: Session | None = None
    try:
        session = Session(load_settings(flags, os.environ, Path.cwd()), verbosity)
        function(session)
    except MacbuildError as error:
        if show_trace:
            traceback.print_exc()
        if session is None:
            raise
        session.fail(error)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        if session is not None:
            session.say("interrupted; run the same command again to go on")
        raise typer.Exit(INTERRUPTED) from error


def _parameter(entry: Setting) -> inspect.Parameter:
    flags = [entry.flag, *([_LETTERS[entry.name]] if entry.name in _LETTERS else [])]
    kind: Any = entry.kind
    if entry.is_list:
        kind = list[str] | None
    elif bool in (kind, *get_args(kind)):
        kind = bool
    elif get_origin(kind) is Literal:
        kind = str | None
    else:
        kind = int | None if int in get_args(kind) else str | None
    text = entry.help if not entry.choices else f"{entry.help} One of {', '.join(entry.choices)}."
    option = typer.Option(*flags, help=text, show_default=False, rich_help_panel="Settings")
    return _keyword(entry.name, Annotated[kind, option], False if kind is bool else None)


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:  # noqa: ANN401 - any annotation, any value
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
