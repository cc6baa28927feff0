"""The tree of errors, each with a message, a place, a hint on what to do next, and an exit code.

Every expected failure is a `MacbuildError`. Any other exception that reaches the command line is a defect.
"""

from __future__ import annotations

import signal
from typing import ClassVar

__all__ = [
    "ArchiveError",
    "AuditError",
    "BuildError",
    "ConfigError",
    "FetchError",
    "FileError",
    "FixError",
    "HeaderRoomError",
    "IntegrityError",
    "LockError",
    "MacbuildError",
    "MachOError",
    "NoSpaceError",
    "PatchError",
    "PlanError",
    "RecipeError",
    "SignatureError",
    "StoreError",
    "Terminated",
    "TestsFailedError",
    "ToolError",
    "UnreachableError",
    "UsageError",
    "nearest",
]


class MacbuildError(Exception):
    """Base of all expected failures, so that one handler can print them and choose the exit code.

    Parameters
    ----------
    message
        The problem, in one sentence without a final full stop.
    where
        The file, key, address or step that has the problem.
    hint
        The next step for the user, a command if there is one.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, where: object | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = None if where is None else str(where)
        self.hint = hint

    def __str__(self) -> str:
        """Return `where: message`, the line that a log shows."""
        return self.message if self.where is None else f"{self.where}: {self.message}"


class UsageError(MacbuildError):
    """A command line that cannot be understood, or that has a bad value or a path that does not exist."""

    exit_code = 2


class ConfigError(MacbuildError):
    """A setting in a file or an environment variable that is unknown or has a bad value."""

    exit_code = 3


class RecipeError(MacbuildError):
    """A recipe that is not valid TOML or not valid data."""

    exit_code = 4


class LockError(MacbuildError):
    """A lock file that is missing, outdated, of another version, or without a required pin."""

    exit_code = 5


class PlanError(MacbuildError):
    """A request that cannot be planned: an unknown component, or a target that the inputs do not support."""

    exit_code = 6


class FetchError(MacbuildError):
    """A source that answered, but not with the requested bytes."""

    exit_code = 7


class UnreachableError(FetchError):
    """A source that did not answer or does not have the file; another source may have it."""

    exit_code = 8


class IntegrityError(FetchError):
    """Bytes that differ from their pin in size or sha256."""

    exit_code = 9


class ArchiveError(MacbuildError):
    """An archive that is damaged or hostile."""

    exit_code = 10


class MachOError(MacbuildError):
    """A Mach-O file that is malformed, or of a kind that is not supported."""

    exit_code = 11


class HeaderRoomError(MachOError):
    """Load commands that do not fit before the first section."""

    exit_code = 12


class SignatureError(MacbuildError):
    """A code signature that is missing or does not match the file."""

    exit_code = 13


class FixError(MacbuildError):
    """A staged tree that cannot be fixed: a dependency that nothing provides, a path that nothing maps."""

    exit_code = 14


class AuditError(MacbuildError):
    """A tree or an artifact that its policy rejects."""

    exit_code = 15


class FileError(MacbuildError):
    """A file or folder outside the store that cannot be read or written, or is damaged."""

    exit_code = 22


class StoreError(FileError):
    """A store that cannot be read or written, or a damaged result in it."""

    exit_code = 16


class NoSpaceError(FileError):
    """A file system that is full."""

    exit_code = 17


class ToolError(MacbuildError):
    """A program that macbuild calls and that is missing or failed."""

    exit_code = 18


class BuildError(MacbuildError):
    """A component that does not configure, compile, link or install."""

    exit_code = 19


class TestsFailedError(MacbuildError):
    """A component whose tests fail."""

    exit_code = 20


class PatchError(MacbuildError):
    """An edit that does not fit the tree, is not valid data, or cannot be reverted."""

    exit_code = 21


class Terminated(KeyboardInterrupt):  # no error, like its base
    """A signal that ends the command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def nearest(word: str, choices: list[str]) -> str:
    """Return a hint with the nearest choice, or with all choices if none is near."""
    import difflib

    found = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else f"known: {', '.join(sorted(choices))}"
