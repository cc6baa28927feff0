"""Run a command line: find the command, and turn what ends it into an exit code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

import macbuild
from macbuild.cli.messages import output_failed, say, show_error
from macbuild.cli.options import COMMANDS
from macbuild.cli.plain import read_words
from macbuild.cli.session import CommandEndedError
from macbuild.errors import MacbuildError, Terminated, UsageError

__all__ = ["INTERRUPTED", "application", "run"]

INTERRUPTED = 130
"""Exit code after an interrupt: 128 and the number of SIGINT, as shells have it; other signals likewise."""
_RESUME = "run the same command again to continue"

# Typer carries its own copy of Click, so its public BadParameter is the way to the class of all usage errors.
_CommandLineError: type[Exception] = typer.BadParameter.__bases__[0]
# Modules of macbuild.cli with a `register`, by the commands that they add, and those that are groups with an `app`.
_MODULES = {
    "build": ("all", "build", "plan", "graph"),
    "audit": ("audit",),
    "verify": ("verify",),
    "init": ("init",),
    "lock": ("lock",),
    "doctor": ("doctor",),
    "develop": ("test", "shell"),
}
_GROUPS = ("cache", "recipes", "macho", "stubs", "patch")


def application(first: str = "") -> typer.Typer:
    """Return the command line; if `first` is a command, with only what that command needs, which loads faster."""
    app = typer.Typer(
        name="macbuild",
        help="Build NVIDIA Triton Inference Server and its backends for macOS, from a Mac or from Linux.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    known = first in _GROUPS or any(first in commands for commands in _MODULES.values())
    for name, commands in _MODULES.items():
        if first in commands or not known:
            import_module(f"macbuild.cli.{name}").register(app)
    for name in _GROUPS:
        if first == name or not known:
            app.add_typer(import_module(f"macbuild.cli.{name}").app, name=name)
    return app


def _main(
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"macbuild {macbuild.__version__}")
        raise typer.Exit


def _exit_code(
    error: MacbuildError | KeyboardInterrupt, *, color: str = "auto", log_format: str = "text", quiet: bool = False
) -> int:
    """Tell what ended a command and return its exit code: that of the error's class, or 128 and the signal's number.

    Parameters
    ----------
    error
        What ended it.
    color, log_format
        The settings of these names.
    quiet
        Say nothing about an interrupt.
    """
    if isinstance(error, MacbuildError):
        show_error(error, color=color, log_format=log_format)
        return error.exit_code
    terminated = isinstance(error, Terminated)
    if not quiet:
        say(f"{error if terminated else 'interrupted'}; {_RESUME}", log_format)
    return 128 + error.number if isinstance(error, Terminated) else INTERRUPTED


def _show_usage_error(error: Exception) -> None:
    message = str(getattr(error, "format_message", error.__str__)())
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(message + "\n")
    else:
        message = message.rstrip(".")
        show_error(UsageError(message[:1].lower() + message[1:], hint="see: macbuild --help"))


def _run_plain(app: typer.Typer, arguments: Sequence[str]) -> int | None:
    """Run a command whose words are plain and return its exit code, None if Typer must read them."""
    group = next((group for group in app.registered_groups if [group.name] == list(arguments[:1])), None)
    owner = app if group is None else group.typer_instance
    first = 0 if group is None else 1
    function = COMMANDS.get((id(owner), "".join(arguments[first : first + 1])))
    values = None if function is None else read_words(inspect.signature(function), arguments[first + 1 :])
    if function is None or values is None:
        return None
    try:
        function(**values)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code: 0, that of the error's class, or 128 and the signal's number."""
    try:
        app = application(next(iter(arguments), ""))
        code = _run_plain(app, arguments)
        if code is None:
            code = app(list(arguments), standalone_mode=False, prog_name="macbuild")
        sys.stdout.flush()
    except CommandEndedError as ended:
        return _exit_code(ended.error, color=ended.color, log_format=ended.log_format, quiet=ended.quiet)
    except (MacbuildError, KeyboardInterrupt) as error:
        return _exit_code(error)
    except _CommandLineError as error:
        _show_usage_error(error)
        return UsageError.exit_code
    except typer.Abort:
        return _exit_code(KeyboardInterrupt())
    except OSError as error:
        # Files are read and written under names (`os_errors`); what has none is our own output.
        if error.filename is not None:
            raise
        return output_failed(error)
    return code if isinstance(code, int) else 0
