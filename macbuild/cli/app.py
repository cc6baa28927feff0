"""The command line: all commands, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

import macbuild
from macbuild.cli import audit, build, cache, doctor, lock, macho, recipes
from macbuild.cli.session import use_color
from macbuild.errors import MacbuildError, UsageError

__all__ = ["app", "run"]

INTERRUPTED = 130
# Typer carries its own copy of Click, so its public BadParameter is the way to the class of all usage errors.
_CommandLineError: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="macbuild",
    help="Build NVIDIA Triton Inference Server and its backends for macOS, from a Mac or from Linux.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
build.register(app)
audit.register(app)
lock.register(app)
doctor.register(app)
app.add_typer(cache.app, name="cache")
app.add_typer(recipes.app, name="recipes")
app.add_typer(macho.app, name="macho")


@app.callback()
def _main(
    *,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        typer.echo(f"macbuild {macbuild.__version__}")
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code: 0, that of the error's class, or 130 after an interrupt."""
    try:
        code = app(list(arguments), standalone_mode=False, prog_name="macbuild")
    except MacbuildError as error:
        if "--debug-traceback" in arguments:
            raise
        show_error(error)
        return error.exit_code
    except _CommandLineError as error:
        show_error(UsageError(_problem(error), hint="see: macbuild --help"))
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted; run the same command again to go on\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; what is still buffered must not fail a second time at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def _problem(error: Exception) -> str:
    message = str(getattr(error, "message", error)).rstrip(".")
    return message[:1].lower() + message[1:]


def show_error(error: MacbuildError) -> None:
    """Write an error and what to do next to standard error."""
    colored = use_color("auto", sys.stderr, dict(os.environ))
    red, dim, off = ("\33[1;31m", "\33[2m", "\33[0m") if colored else ("", "", "")
    sys.stderr.write(f"{red}error:{off} {error}\n")
    if error.hint:
        sys.stderr.write(f"{dim}hint:{off} {error.hint}\n")
