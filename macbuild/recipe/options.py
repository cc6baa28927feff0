"""Options of a component: parts of it that a user may want or not, and what each means for the build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from macbuild.data import Data
from macbuild.errors import PlanError, UsageError, nearest
from macbuild.recipe.release import Name, Reference, Text, references

__all__ = ["Choice", "Option"]


class Option(Data, frozen=True):
    """A part of a component that can be left out."""

    summary: Annotated[Text, Meta(description="what it is")]
    default: Annotated[
        bool,
        Meta(
            description="whether it is on if the user does not choose. It is off if something that it needs is not "
            "available"
        ),
    ] = True
    on: Annotated[dict[Text, str], Meta(description="CMake cache variables with it")] = {}
    off: Annotated[dict[Text, str], Meta(description="CMake cache variables without it")] = {}
    needs: Annotated[
        list[Reference],
        Meta(description="what the component is built with because of it; `{version}` is that of the release"),
    ] = []
    carries: Annotated[list[Reference], Meta(description="what packages hold because of it, likewise")] = []
    requires: Annotated[list[Name], Meta(description="options that it cannot be without")] = []
    refused: Annotated[str, Meta(description="why it is not available, if it is not")] = ""

    @property
    def components(self) -> dict[str, str]:
        """All components that it brings in, with their versions; empty for the only release."""
        return references([*self.needs, *self.carries])


@dataclass(frozen=True)
class Choice:
    """The options that the user wants, and those that the user does not want."""

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
            Options that are left out because something they need is unavailable.

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
