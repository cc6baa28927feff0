"""Run one command: load its settings, hold its project and output."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from macbuild.cli.messages import say, use_color
from macbuild.config import Settings, load_settings
from macbuild.errors import MacbuildError

if TYPE_CHECKING:
    from rich.console import Console

    from macbuild.commands.project import Project

__all__ = ["CommandEndedError", "Session", "run_command"]


@dataclass(frozen=True)
class Session:
    """Settings, project and output of one command. `verbosity` is -v minus -q."""

    settings: Settings
    verbosity: int = 0

    @cached_property
    def project(self) -> Project:
        """The project that the current folder belongs to."""
        from macbuild.commands.project import Project

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
        """True if progress bars make sense: a terminal, text logs, not quiet, not CI."""
        plain = self.settings.log_format != "text" or self.verbosity < 0 or bool(os.environ.get("CI"))
        return not plain and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def print_json(self, data: Any) -> None:
        """Write data to standard output."""
        sys.stdout.write(json.dumps(data, indent=2, sort_keys=True) + "\n")

    def print_line(self, text: str, indent: int = 2) -> None:
        """Write a line for a person to standard output, folded for a terminal with a margin of `indent` spaces."""
        from macbuild.cli.tables import fold_for

        sys.stdout.write(fold_for(sys.stdout, text, indent) + "\n")

    def say(self, text: str) -> None:
        """Write a line for a person to standard error, unless quiet; to the JSON log as a note."""
        if self.verbosity >= 0 or self.settings.log_format == "json":
            say(text, self.settings.log_format)

    def _console(self, stream: TextIO) -> Console:
        from rich.console import Console

        colored = use_color(self.settings.color, stream, dict(os.environ))
        width = None if stream.isatty() else 160
        terminal = True if colored else None
        return Console(file=stream, force_terminal=terminal, no_color=not colored, highlight=False, width=width)


class CommandEndedError(Exception):
    """An error or an interrupt, with the settings that say how it is shown."""

    def __init__(self, error: MacbuildError | KeyboardInterrupt, session: Session) -> None:
        super().__init__(str(error))
        self.error = error
        self.color = session.settings.color
        self.log_format = session.settings.log_format
        self.quiet = session.verbosity < 0 and self.log_format != "json"


def run_command(
    function: Callable[[Session], None], flags: Mapping[str, object], verbosity: int, *, show_trace: bool
) -> None:
    """Run a command in a session of its own.

    Parameters
    ----------
    function
        The command.
    flags
        Settings from the command line.
    verbosity
        `-v` minus `-q`.
    show_trace
        Print the traceback of an error, too.

    Raises
    ------
    CommandEndedError
        After an error or an interrupt.
    MacbuildError, KeyboardInterrupt
        The same if the settings are not loaded yet.
    """
    session: Session | None = None
    try:
        session = Session(load_settings(flags, os.environ, Path.cwd()), verbosity)
        function(session)
    except (MacbuildError, KeyboardInterrupt) as error:
        if show_trace and isinstance(error, MacbuildError):
            traceback.print_exc()
        if session is None:
            raise
        raise CommandEndedError(error, session) from error
