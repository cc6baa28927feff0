"""What one command works with: settings, project, and where its words go."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from macbuild.config import Settings
from macbuild.errors import MacbuildError

if TYPE_CHECKING:
    from rich.console import Console

    from macbuild.project import Project

__all__ = ["Session", "log_line", "show_error", "use_color"]


def use_color(choice: str, stream: TextIO, environ: dict[str, str]) -> bool:
    """Whether to colour a stream: the setting, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def show_error(error: MacbuildError, *, color: str = "auto", log_format: str = "text") -> None:
    """Write an error and what to do next to standard error, in the form that the settings ask for."""
    if log_format == "json":
        fields = {"error": type(error).__name__, "message": error.message, "where": error.where, "hint": error.hint}
        log_line("Error", exit_code=error.exit_code, **fields)
        return
    red, dim, off = (
        ("\33[1;31m", "\33[2m", "\33[0m") if use_color(color, sys.stderr, dict(os.environ)) else ("", "", "")
    )
    sys.stderr.write(f"{red}error:{off} {error}\n")
    if error.hint:
        sys.stderr.write(f"{dim}hint:{off} {error.hint}\n")


def log_line(event: str, **fields: object) -> None:
    """Write a line of the JSON log to standard error."""
    sys.stderr.write(json.dumps({"time": time.time(), "event": event, **fields}) + "\n")


@dataclass(frozen=True)
class Session:
    """Settings, project and output of one command. `verbosity` is -v minus -q."""

    settings: Settings
    verbosity: int = 0

    @cached_property
    def project(self) -> Project:
        """The project that the current folder belongs to."""
        from macbuild.project import Project  # noqa: PLC0415 - commands on single files need no recipes

        return Project(self.settings, os.environ, Path.cwd())

    @cached_property
    def out(self) -> Console:
        """Standard output, for data."""
        return self._console(sys.stdout)

    @cached_property
    def err(self) -> Console:
        """Standard error, for everything else."""
        return self._console(sys.stderr)

    @property
    def live(self) -> bool:
        """Whether progress bars make sense: a terminal, text logs, not quiet, not CI."""
        plain = self.settings.log_format != "text" or self.verbosity < 0 or bool(os.environ.get("CI"))
        return not plain and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def print_json(self, data: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
        """Write data to standard output."""
        sys.stdout.write(json.dumps(data, indent=2, sort_keys=True) + "\n")

    def say(self, text: str) -> None:
        """Write a line for a person to standard error, unless quiet; to the JSON log as a note."""
        if self.settings.log_format == "json":
            log_line("Note", level="info", message=text, step="")
        elif self.verbosity >= 0:
            sys.stderr.write(text + "\n")

    def fail(self, error: MacbuildError) -> None:
        """Write an error to standard error."""
        show_error(error, color=self.settings.color, log_format=self.settings.log_format)

    def _console(self, stream: TextIO) -> Console:
        from rich.console import Console  # noqa: PLC0415 - not for commands that print JSON or nothing

        colored = use_color(self.settings.color, stream, dict(os.environ))
        width = None if stream.isatty() else 160
        return Console(
            file=stream, force_terminal=colored, no_color=not colored, highlight=False, width=width, soft_wrap=False
        )
