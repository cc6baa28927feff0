"""Commands from functions: each gets the settings it names as flags, and the flags that all commands have."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from macbuild.cli.session import Session
from macbuild.config import Setting, load_settings, setting

__all__ = ["ALWAYS", "command"]

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
            flags = {entry: values.pop(entry) or None for entry in names}
            common = {entry: values.pop(entry) for entry, _, _ in _COMMON}
            loaded = load_settings(flags, os.environ, Path.cwd())
            session = Session(loaded, verbosity=common["verbose"] - common["quiet"])
            function(session, **values)

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
        app.command(name, help=inspect.getdoc(function), **extra)(run)
        return function

    return register


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
