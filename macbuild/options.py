"""Options of a component: parts of it that a user may want or not, and what each means for the build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from macbuild.data import Data, nearest
from macbuild.errors import PlanError, UsageError

__all__ = ["Choice", "Option"]

_NAME = r"^[a-z][a-z0-9_]*$(?!\n)"
Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
Version = Annotated[str, msgspec.Meta(pattern=r"^(\{version\}|[0-9]{1,9}(\.[0-9]{1,9})*)$(?!\n)")]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Option(Data, frozen=True):
    """A part of a component that can be left out.

    Parameters
    ----------
    summary
        What it is.
    default
        Whether it is there if nobody says otherwise. It is not there if something that it needs cannot be had.
    on, off
        CMake cache variables with it and without it.
    needs
        What it is built with; the version `{version}` is that of the release.
    carries
        What packages hold because of it, likewise.
    requires
        Options that it cannot be without.
    refused
        Why it cannot be had, if it cannot.
    """

    summary: Text
    default: bool = True
    on: dict[Text, str] = {}
    off: dict[Text, str] = {}
    needs: dict[Name, Version] = {}
    carries: dict[Name, Version] = {}
    requires: list[Name] = []
    refused: str = ""

    @property
    def components(self) -> dict[str, str]:
        """All components that it brings in, with their versions."""
        return {**self.needs, **self.carries}


@dataclass(frozen=True)
class Choice:
    """What the user said about options: those that must be there, and those that must not."""

    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()

    def check(self, tables: Iterable[Mapping[str, Option]]) -> None:
        """Refuse names that no component has, and contradictions.

        Raises
        ------
        UsageError
            With the nearest name.
        """
        known = {name for table in tables for name in table}
        for flag, names in (("--with", self.wanted), ("--without", self.unwanted)):
            for name in names:
                if name not in known:
                    raise UsageError(f"there is no option {name!r}", where=flag, hint=nearest(name, sorted(known)))
        both = sorted(set(self.wanted) & set(self.unwanted))
        if both:
            raise UsageError(f"{both[0]} is both wanted and not", where="--with, --without")

    def of(self, component: str, options: Mapping[str, Option], without: Sequence[str] = ()) -> dict[str, bool]:
        """Return which options of a component are on.

        Parameters
        ----------
        component
            Its name, for messages.
        options
            All that it has.
        without
            Those that cannot be had now.

        Raises
        ------
        PlanError
            If one is wanted that is refused, or one is on that requires another one that is off.
        """
        chosen = {}
        for name, option in options.items():
            if name in self.wanted and option.refused:
                raise PlanError(f"cannot be built with {name}: {option.refused}", where=component)
            by_default = option.default and not option.refused and name not in without
            chosen[name] = name in self.wanted or (by_default and name not in self.unwanted)
        for name, missing in _unmet(options, chosen):
            raise PlanError(
                f"{name} requires {missing}, which is off",
                where=component,
                hint=f"add --without {name}, or --with {missing}",
            )
        return chosen


def _unmet(options: Mapping[str, Option], chosen: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    for name, option in options.items():
        for other in option.requires:
            if chosen[name] and not chosen.get(other):
                yield name, other
