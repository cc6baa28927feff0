"""Releases of a component: where their bytes come from, and what each architecture of them is built with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from macbuild.data import Data
from macbuild.source.fetch.sources import Source
from macbuild.target import Arch

__all__ = [
    "ANY",
    "BUILT_FROM",
    "SLICES",
    "ArchFacts",
    "Candidate",
    "EveryRelease",
    "LinuxRelease",
    "Name",
    "Reference",
    "Release",
    "ReleaseFacts",
    "SliceRelease",
    "Text",
    "Version",
    "merged",
    "references",
    "with_version",
]

NAME: Final = r"^[a-z][a-z0-9_]*$(?!\n)"
DOTTED: Final = r"^[0-9]{1,9}(\.[0-9]{1,9})*$(?!\n)"
Name = Annotated[str, Meta(pattern=NAME)]
Version = Annotated[str, Meta(pattern=DOTTED)]
Reference = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*(@(\{version\}|[0-9]{1,9}(\.[0-9]{1,9})*))?$(?!\n)")]
"""A component as `zlib`, or with a version as `pybind11@3.0.4`."""
Text = Annotated[str, Meta(min_length=1)]
Slice = Literal["arm64", "x86_64"]
SLICES: Final[tuple[Slice, ...]] = ("arm64", "x86_64")
ANY: Final = "any"
"""The architecture of a source that is compiled for all of them."""
BUILT_FROM: Final = "11.0"
"""The oldest macOS that a build is for: there is no evidence about the system libraries of older ones."""


def references(texts: Iterable[str]) -> dict[str, str]:
    """Return versions by component name; the version is empty where only the name is given."""
    return {name: version for name, _, version in (text.partition("@") for text in texts)}


def with_version(texts: Iterable[str], version: str) -> list[str]:
    """Return references with `{version}` replaced."""
    return [text.replace("{version}", version) for text in texts]


def merged(base: Iterable[str], own: Iterable[str]) -> list[str]:
    """Return references in order, where one of `own` replaces the one of `base` with the same name."""
    table = {**references(base), **references(own)}
    return [f"{name}@{version}" if version else name for name, version in table.items()]


class Candidate(Data, frozen=True):
    """A place that the bytes can come from. The first that is pinned and answers is used."""

    name: Annotated[Name, Meta(description="the name in the lock and in messages")]
    layout: Annotated[Name, Meta(description="which layout fits what this source unpacks to")]
    fetch: Annotated[
        Source,
        Meta(
            description="where the bytes are; `type` chooses the form. In its values, `{homepage}`, `{version}`, "
            "`{arch}` and the placeholders of the release are replaced"
        ),
    ]
    folder: Annotated[
        str,
        Meta(
            description="what `{folder}` in the layout stands for; `{package_version}` is the version of the package "
            "that is fetched"
        ),
    ] = ""


class ReleaseFacts(Data, frozen=True):
    """Facts that can differ between the architectures of a release."""

    minimum_macos: Annotated[
        Version | None,
        Meta(
            description="the oldest macOS that every file inside runs on; the audit checks it. Default: "
            f"{BUILT_FROM} for what is built; what is repackaged must state it"
        ),
    ] = None
    needs: Annotated[
        list[Reference],
        Meta(
            description="the components that it is built with, as `zlib`, or as `pybind11@3.0.4` if the component has "
            "several releases"
        ),
    ] = []
    trees: Annotated[list[Reference], Meta(description="the components whose sources the build reads")] = []
    carries: Annotated[
        list[Reference],
        Meta(
            description="what packages may contain that it is not linked with; the minimum macOS of such a package is "
            "the newer of the two"
        ),
    ] = []
    tools: Annotated[
        list[Reference],
        Meta(description="the components whose programs the build runs; they are built for this machine"),
    ] = []

    def over(self, base: ReleaseFacts) -> ReleaseFacts:
        """Return these facts merged with weaker ones."""
        return ReleaseFacts(
            minimum_macos=self.minimum_macos or base.minimum_macos,
            needs=merged(base.needs, self.needs),
            trees=merged(base.trees, self.trees),
            carries=merged(base.carries, self.carries),
            tools=merged(base.tools, self.tools),
        )


class ArchFacts(ReleaseFacts, frozen=True):
    """Facts of one architecture of a release that differ from the other; lists add to those of the release."""

    sources: Annotated[
        list[Candidate], Meta(description="for what is repackaged: where the bytes are, in order of preference")
    ] = []


class LinuxRelease(Data, frozen=True):
    """A release for Linux, which serves tests on this machine and never becomes an artifact."""

    sources: Annotated[list[Candidate], Meta(min_length=1, description="in order of preference")]


class SliceRelease(msgspec.Struct, frozen=True):
    """All that one architecture of a release is made from; a version is empty for the only release of a component."""

    minimum_macos: str
    sources: list[Candidate]
    needs: dict[str, str]
    trees: dict[str, str]
    carries: dict[str, str]
    tools: dict[str, str]


class EveryRelease(ReleaseFacts, frozen=True):
    """Facts that all releases have in common. A release's own facts override them, and its lists add to these."""

    source: Annotated[
        list[Candidate],
        Meta(description="what is compiled, the same for every architecture, in order of preference"),
    ] = []
    archs: Annotated[
        list[Slice] | None,
        Meta(
            description="the architectures of what is built. Default: both; with both, universal2 can be built. What "
            "is repackaged has those with sources"
        ),
    ] = None


class Release(EveryRelease, frozen=True, kw_only=True):
    """A version, and what it is made from."""

    version: Annotated[Version, Meta(description="as the vendor writes it")]
    placeholders: Annotated[
        dict[Name, Text], Meta(description="what `{name}` stands for in `fetch`, in `folder` and in layouts")
    ] = {}
    arm64: Annotated[ArchFacts | None, Meta(description="what only arm64 has")] = None
    x86_64: Annotated[ArchFacts | None, Meta(description="what only x86_64 has")] = None
    linux_x86_64: Annotated[
        LinuxRelease | None,
        Meta(description="the same for Linux, for tests on this machine; such a release is not an artifact"),
    ] = None

    def own(self, arch: str) -> ArchFacts | None:
        """Return what only an architecture of macOS has."""
        return self.arm64 if arch == "arm64" else self.x86_64

    def slice(self, arch: str) -> SliceRelease | None:
        """Return what an architecture of macOS is made from; None if the release does not have it."""
        if arch not in (self.archs or ()):
            return None
        own = self.own(arch) or ArchFacts()
        facts = own.over(self)
        return SliceRelease(
            facts.minimum_macos or BUILT_FROM,
            own.sources,
            references(facts.needs),
            references(facts.trees),
            references(facts.carries),
            references(facts.tools),
        )

    def sources(self, arch: str) -> list[Candidate]:
        """Return the sources of an architecture of macOS, of `linux_x86_64`, or of what is compiled for `ANY`."""
        if arch == ANY:
            return self.source
        part = self.linux_x86_64 if arch == "linux_x86_64" else self.own(arch)
        return part.sources if part else []

    def serves(self, arch: Arch) -> bool:
        """Return whether the release has every slice of an architecture."""
        return all(self.slice(name) for name in (("x86_64", "arm64") if arch == "universal2" else (arch,)))
