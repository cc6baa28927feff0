"""The command line: all commands, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import typer

import macbuild
from macbuild.cli.options import INTERRUPTED
from macbuild.cli.session import show_error
from macbuild.errors import MacbuildError, UsageError

__all__ = ["application", "run"]

# Typer carries its own copy of Click, so its public BadParameter is the way to the class of all usage errors.
_CommandLineError: type[Exception] = typer.BadParameter.__bases__[0]
# Modules of macbuild.cli with a `register`, by the commands that they add, and those that are groups with an `app`.
_MODULES = {
    "build": ("all", "build", "plan", "graph"),
    "audit": ("audit",),
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
    version: bool = typer.Option(default=False, help="Show the version and exit."),
) -> None:
    if version:
        typer.echo(f"macbuild {macbuild.__version__}")
        raise typer.Exit


def _show_usage_error(error: Exception) -> None:
    message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(message + "\n")
    else:
        show_error(UsageError(message[:1].lower() + message[1:], hint="see: macbuild --help"))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code: 0, that of the error's class, or 130 after an interrupt."""
    try:
        app = application(next(iter(arguments), ""))
        code = app(list(arguments), standalone_mode=False, prog_name="macbuild")
    except MacbuildError as error:
        show_error(error)
        return error.exit_code
    except _CommandLineError as error:
        _show_usage_error(error)
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted; run the same command again to go on\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; what is still buffered must not fail a second time at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0
