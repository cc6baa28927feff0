"""The libraries of macOS that an artifact may depend on, read from `system.toml`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from macbuild.data import Data, load_toml
from macbuild.errors import ConfigError
from macbuild.target import pack_version

__all__ = ["SystemLibrary", "find_system_library"]


class SystemLibrary(Data, frozen=True):
    """A library of macOS.

    `path` is the install name, or a glob on it. `since` is the first macOS that has it, if that matters;
    `compatibility` the greatest compatibility version that it has in an SDK.
    """

    path: str
    since: str = "10.0"
    compatibility: str | None = None

    @property
    def first(self) -> int:
        """The first macOS that has it, packed as X.Y.Z in 16, 8 and 8 bits."""
        return pack_version(self.since)

    @property
    def greatest(self) -> int | None:
        """The greatest compatibility version, packed in the same way."""
        return None if self.compatibility is None else pack_version(self.compatibility)


class _SystemTable(Data, frozen=True):
    library: list[SystemLibrary]


@cache
def _libraries() -> tuple[dict[str, SystemLibrary], tuple[SystemLibrary, ...]]:
    table = load_toml(Path(__file__).parent / "system.toml", _SystemTable, ConfigError).library
    return {library.path: library for library in table}, tuple(entry for entry in table if "*" in entry.path)


def find_system_library(name: str) -> SystemLibrary | None:
    """Return the entry of the allow-list for a dependency; a framework may be named without its version folder."""
    exact, globs = _libraries()
    found = exact.get(name) or next((entry for entry in globs if fnmatchcase(name, entry.path)), None)
    if found is None and ".framework/" in name and "/Versions/" not in name:
        found = next((entry for entry in exact.values() if _unversioned(entry.path) == name), None)
    return found


def _unversioned(path: str) -> str:
    folder, _, rest = path.partition("/Versions/")
    return f"{folder}/{rest.partition('/')[2]}" if rest else path
