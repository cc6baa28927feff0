"""The input and output of a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from macbuild.audit.graph import LoadGraph
from macbuild.audit.model import ExportRule
from macbuild.audit.policy import Parameters
from macbuild.audit.providers import Providers
from macbuild.audit.tree import AuditedSlice, AuditedTree

__all__ = ["AuditContext", "Check", "ContextClaim", "Hit", "examples"]


@dataclass(frozen=True, slots=True)
class ContextClaim:
    """The claim that an artifact is measured by, from its file name or from the caller.

    `archs` is None if nothing is claimed. `minimum` is the minimum macOS of each architecture, packed as X.Y.Z in 16,
    8 and 8 bits. `by_tag` is true if it comes from a wheel tag, which cannot express every version.
    """

    archs: frozenset[str] | None = None
    minimum: Mapping[str, int] = field(default_factory=dict)
    by_tag: bool = False


@dataclass(frozen=True, slots=True)
class AuditContext:
    """Everything that rules read. `wheel` has the name and version that the file name of a wheel promises."""

    tree: AuditedTree
    graph: LoadGraph
    claim: ContextClaim
    parameters: Parameters
    exports: Mapping[str, ExportRule]
    providers: Providers
    wheel: tuple[str, str] | None = None

    def linked(self) -> Iterator[AuditedSlice]:
        """Yield the slices under audit that dyld loads: executables, dylibs and bundles."""
        return (entry for entry in self.tree.slices() if entry.linked)


class Hit(NamedTuple):
    """A finding before the policy gives it a severity. `path` is relative to the tree."""

    rule: str
    path: str
    slice: str | None
    message: str
    hint: str


Check: TypeAlias = Callable[[AuditContext], Iterator[Hit]]


def examples(names: frozenset[bytes] | set[bytes], count: int = 3) -> str:
    """Return the first names in order, and how many more there are."""
    shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in sorted(names)[:count])
    return shown if len(names) <= count else f"{shown} and {len(names) - count} more"
