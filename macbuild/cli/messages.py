"""Write errors and notes to standard error, as text or as lines of the JSON log."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import TextIO

from macbuild.errors import MacbuildError

__all__ = ["log_line", "output_failed", "say", "show_error", "use_color"]

_MARGIN = 2  # spaces before what follows the first line of a note


def output_failed(error: OSError) -> int:
    """Return the exit code after standard output could not be written, with a message unless its reader is gone."""
    # What is still buffered must not fail again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 1
    from macbuild.files import translate_oserror

    failure = translate_oserror(error, "standard output")
    show_error(failure)
    return failure.exit_code


def show_error(error: MacbuildError, *, color: str = "auto", log_format: str = "text") -> None:
    """Write an error and its hint to standard error, as text or as a line of the JSON log."""
    if log_format == "json":
        fields = {"error": type(error).__name__, "message": error.message, "where": error.where, "hint": error.hint}
        log_line("Error", exit_code=error.exit_code, **fields)
        return
    red, dim, off = (
        ("\33[1;31m", "\33[2m", "\33[0m") if use_color(color, sys.stderr, dict(os.environ)) else ("", "", "")
    )
    _write_labelled("error:", str(error), red, off)
    if error.hint:
        _write_labelled("hint:", error.hint, dim, off)


def say(text: str, log_format: str = "text") -> None:
    """Write a line for a person to standard error, or to the JSON log as a note."""
    if log_format == "json":
        log_line("Note", level="info", message=text, step="")
    else:
        from macbuild.cli.tables import fold_for

        _write(fold_for(sys.stderr, text, _MARGIN) + "\n")


def _write_labelled(label: str, text: str, on: str, off: str) -> None:
    """Write a label in a colour and a text that is folded below itself."""
    from macbuild.cli.tables import fold_for

    line = fold_for(sys.stderr, f"{label} {text}", len(label) + 1)
    _write(f"{on}{label}{off}{line.removeprefix(label)}\n")


def _write(text: str) -> None:
    """Write to standard error; if that is full or gone, the exit code still tells what happened."""
    with suppress(OSError):
        sys.stderr.write(text)


def log_line(event: str, **fields: object) -> None:
    """Write a line of the JSON log to standard error."""
    _write(json.dumps({"time": time.time(), "event": event, **fields}) + "\n")


def use_color(choice: str, stream: TextIO, environ: dict[str, str]) -> bool:
    """Decide if a stream is coloured: by the setting, NO_COLOR, FORCE_COLOR, and then by it being a terminal."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"
