"""Make commands of functions: each gets flags for the settings that it names, and the flags of all commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from macbuild.cli.completion import values_of
from macbuild.cli.session import run_command
from macbuild.config import Setting, setting

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

__all__ = ["ALWAYS", "COMMANDS", "Command", "command"]

COMMANDS: dict[tuple[int, str], Callable[..., None]] = {}
"""What runs a command, by the identity of its Typer application and its name; the signature declares the parameters."""

ALWAYS = ("cache_dir", "color", "log_format")
_LETTERS = {"jobs": "-j", "keep_going": "-k", "arch": "-a"}
# What help shows for the value of a setting that is not one of a few words.
_METAVARS = {
    "arch": "ARCH",
    "cache_dir": "FOLDER",
    "deployment_target": "X.Y",
    "dist": "FOLDER",
    "jobs": "N",
    "lock": "FILE",
    "mirrors": "PLACE",
    "policy": "POLICY",
    "recipes": "FOLDER",
    "sources": "COMPONENT=FOLDER",
    "unwanted_options": "OPTION",
    "wanted_options": "OPTION",
}
_COMMON: tuple[tuple[str, Any, Any], ...] = (
    (
        "verbose",
        Annotated[
            int,
            typer.Option(
                "--verbose", "-v", count=True, show_default=False, help="Increase verbosity (repeat for debug output)."
            ),
        ],
        0,
    ),
    (
        "quiet",
        Annotated[
            int,
            typer.Option(
                "--quiet", "-q", count=True, show_default=False, help="Decrease verbosity (repeat for errors only)."
            ),
        ],
        0,
    ),
    (
        "debug_traceback",
        Annotated[bool, typer.Option("--debug-traceback", help="Show the traceback of an error.")],
        False,
    ),
)


class Command(TyperCommand):
    """Names arguments in help as the reference does: Typer adds their types and braces."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Return what follows the command's name in the line about its usage."""
        arguments = [entry for entry in self.get_params(ctx) if entry.param_type_name == "argument"]
        return [self.options_metavar or "", *map(_shown, arguments)]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments, then the options."""
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for entry in self.get_params(ctx):
            record = entry.get_help_record(ctx)
            if record is not None and entry.param_type_name == "argument":
                rows["Arguments"].append((_shown(entry), record[1]))
            elif record is not None:
                rows["Options"].append(record)
        for title, lines in rows.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


def _shown(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def command(
    app: typer.Typer,
    name: str,
    settings: Sequence[str] = (),
    **extra: Any,
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

        def run(**values: Any) -> None:
            flags = {entry: value for entry in names if _was_given(value := values.pop(entry))}
            common = {entry: values.pop(entry) for entry, _, _ in _COMMON}
            verbosity = common["verbose"] - common["quiet"]
            trace: bool = common["debug_traceback"]
            run_command(lambda session: function(session, **values), flags, verbosity, show_trace=trace)

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
        app.command(name, help=inspect.getdoc(function), **{"cls": Command, **extra})(run)
        COMMANDS[id(app), name] = run
        return function

    return register


def _was_given(value: object) -> bool:
    """Tell if a flag was on the command line; 0 and the empty text are values, too."""
    return value is not None and value is not False and value != []


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
    option = typer.Option(
        *flags,
        metavar=None if kind is bool else _METAVARS.get(entry.name, f"{{{','.join(entry.choices)}}}"),
        help=entry.help,
        show_default=False,
        rich_help_panel="Settings",
        autocompletion=values_of(entry),
    )
    return _keyword(entry.name, Annotated[kind, option], False if kind is bool else None)


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
