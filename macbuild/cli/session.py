"""What one command works with: settings, project, and where its words go."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from macbuild.config import Settings
from macbuild.project import Project

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Session", "use_color"]


def use_color(choice: str, stream: TextIO, environ: dict[str, str]) -> bool:
    """Whether to colour a stream: the setting, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


@dataclass(frozen=True)
class Session:
    """Settings, project and output of one command. `verbosity` is -v minus -q."""

    settings: Settings
    verbosity: int = 0

    @cached_property
    def project(self) -> Project:
        """The project that the current folder belongs to."""
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
        """Write a line for a person to standard error, unless quiet."""
        if self.verbosity >= 0 and self.settings.log_format == "text":
            sys.stderr.write(text + "\n")

    def _console(self, stream: TextIO) -> Console:
        from rich.console import Console  # noqa: PLC0415 - not for commands that print JSON or nothing

        colored = use_color(self.settings.color, stream, dict(os.environ))
        width = None if stream.isatty() else 160
        return Console(
            file=stream, force_terminal=colored, no_color=not colored, highlight=False, width=width, soft_wrap=False
        )
