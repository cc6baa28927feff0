"""What a rule gets and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from macbuild.audit.graph import Graph
from macbuild.audit.model import ExportRule
from macbuild.audit.policy import Parameters
from macbuild.audit.providers import Providers
from macbuild.audit.tree import Slice, Tree

__all__ = ["Check", "Claim", "Context", "Hit", "examples"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What an artifact says about itself, by its file name or by whoever asks.

    `archs` is None where nothing is said. `minimum` is the minimum macOS of each architecture, packed as X.Y.Z in 16,
    8 and 8 bits. `by_tag` tells that it comes from a wheel tag, which cannot say every version.
    """

    archs: frozenset[str] | None = None
    minimum: Mapping[str, int] = field(default_factory=dict)
    by_tag: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that rules look at."""

    tree: Tree
    graph: Graph
    claim: Claim
    parameters: Parameters
    exports: Mapping[str, ExportRule]
    providers: Providers

    def linked(self) -> Iterator[Slice]:
        """Give the slices under audit that dyld loads: executables, dylibs and bundles."""
        return (entry for entry in self.tree.slices() if entry.linked)


class Hit(NamedTuple):
    """A finding before the policy gave it a severity. `path` is the place in the tree."""

    rule: str
    path: str
    slice: str | None
    message: str
    mend: str


Check: TypeAlias = Callable[[Context], Iterator[Hit]]


def examples(names: frozenset[bytes] | set[bytes], count: int = 3) -> str:
    """Return the first names in order, and how many more there are."""
    shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in sorted(names)[:count])
    return shown if len(names) <= count else f"{shown} and {len(names) - count} more"
