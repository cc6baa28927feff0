"""Recipes: what a component is, where its bytes come from, and what is special about it, as typed data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from macbuild.audit.model import Exemption, ExportRule
from macbuild.data import PLACEHOLDER, Data, filled
from macbuild.errors import PlanError, nearest
from macbuild.recipe.options import Option
from macbuild.recipe.release import DOTTED, Candidate, EveryRelease, Name, Release, Slice, Text
from macbuild.target import Arch, parse_version

__all__ = [
    "LICENSES",
    "PLACEHOLDER",
    "Audit",
    "Build",
    "External",
    "FixRules",
    "Include",
    "LayoutRule",
    "Link",
    "Package",
    "PackageFacts",
    "Prefer",
    "Recipe",
]

LICENSES: Final = "licenses/"
"""Where a package has the licences of what is linked into it, unless its recipe says otherwise."""

_EXCLUDE = "globs on the path below the fixed part, for what is left out"


class LayoutRule(Data, frozen=True):
    """Files of the unpacked source that go into the stage.

    In `from`, `**` crosses folders. With a `to` that ends in a slash, matches keep their path below the glob's fixed
    part; otherwise `from` is one file and `to` its new path. Matching nothing is an error.
    """

    source: Annotated[Text, Meta(description="glob in the unpacked source")] = msgspec.field(name="from")
    to: Annotated[str, Meta(description="place in the artifact; empty is its top folder")]
    exclude: Annotated[list[Text], Meta(description=_EXCLUDE)] = []
    reason: Annotated[str, Meta(description="why, where it is not plain")] = ""


class Link(Data, frozen=True):
    """A symbolic link in the stage."""

    path: Annotated[Text, Meta(description="the link, in the stage")]
    target: Annotated[Text, Meta(description="where it points, relative to the folder of the link")]
    reason: Annotated[Text, Meta(description="what it is for")]


class Dependency(Data, frozen=True):
    """A dependency that must be renamed in a way the general rule does not know."""

    match: Annotated[Text, Meta(description="glob on the name in the load command")]
    to: Annotated[Text, Meta(description="the new name")]
    reason: Annotated[Text, Meta(description="why the general rule does not fit")]


class Identity(Data, frozen=True):
    """An install name other than `@rpath/<file>`."""

    file: Annotated[Text, Meta(description="glob on the path in the stage")]
    id: Annotated[Text, Meta(description="the install name")]
    reason: Annotated[Text, Meta(description="why the general rule does not fit")]


class External(Data, frozen=True):
    """A dependency that is not in the stage."""

    match: Annotated[Text, Meta(description="glob on the name in the load command")]
    reason: Annotated[Text, Meta(description="who provides it")]


class FixRules(Data, frozen=True):
    """Exceptions from the general rules of the fix step."""

    ids: Annotated[list[Identity], Meta(description="install names that the general rule would get wrong")] = []
    dependencies: Annotated[list[Dependency], Meta(description="dependencies that the general rule cannot rename")] = []
    external: Annotated[
        list[External], Meta(description="dependencies that the artifact does not hold, and who provides them")
    ] = []


class Build(Data, frozen=True):
    """A CMake project in the recipe's folder, or in a source that is not ours.

    In `definitions`, `project` and `install`, `{name}` is the folder of a component's source or stage; `{version}` and
    `{arch}` stand for those of the release. In `definitions`, the name of a component whose inputs are borrowed stands
    for the folder of its recipe.
    """

    inputs: Annotated[
        list[Text],
        Meta(
            description="globs on all files that the result depends on, below the recipe's folder or, with `../`, that "
            "of another one; `{name}` borrows all inputs of another component, which may be one of macbuild"
        ),
    ] = []
    project: Annotated[
        str, Meta(description="folder of the project in a source, as `{core}/src`; the recipe's own if empty")
    ] = ""
    definitions: Annotated[dict[Text, str], Meta(description="CMake cache variables")] = {}
    options: Annotated[dict[Name, Option], Meta(description="what a user may leave out or ask for")] = {}
    install: Annotated[
        list[LayoutRule],
        Meta(
            description="what of the project's installation goes into the stage, and of sources, as `{core}/LICENSE`; "
            "all of the installation if there is no rule"
        ),
    ] = []
    python_packages: Annotated[
        dict[Name, Text],
        Meta(
            description="Python packages by component: the files of the component are in the package, which a wheel "
            "requires and a build for this machine uses"
        ),
    ] = {}
    consumer: Annotated[
        str,
        Meta(
            description="for a library that only other components use: folder of a CMake project that uses it as they "
            "do. What that installs is audited for macOS, and its tests run on this machine"
        ),
    ] = ""

    @property
    def borrowed(self) -> list[str]:
        """The components whose inputs it has besides its own."""
        return [match[1] for text in self.inputs if (match := PLACEHOLDER.fullmatch(text))]

    @property
    def own_inputs(self) -> list[str]:
        """The patterns on files that are its own."""
        return [text for text in self.inputs if not PLACEHOLDER.fullmatch(text)]


class Include(Data, frozen=True):
    """Files of another component that a package carries; `from` and `to` are as in a layout."""

    component: Annotated[Name, Meta(description="one of `needs` or `carries`")]
    source: Annotated[Text, Meta(description="glob in the stage of that component")] = msgspec.field(name="from")
    to: Annotated[str, Meta(description="place in the package, below its `prefix`")]
    exclude: Annotated[list[Text], Meta(description=_EXCLUDE)] = []
    packed: Annotated[
        bool,
        Meta(
            description="take the files from the component's tarball, with all that it holds; what the audit must know "
            "of that applies here, too"
        ),
    ] = False


class PackageFacts(Data, frozen=True):
    """Facts that all packages of a component have in common. The lists of a package add to these."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z0-9_-]*$(?!\n)",
            description="name of the distribution; the file's name begins with it. Default: the component's name",
        ),
    ] = ""
    licenses: Annotated[
        str,
        Meta(
            pattern=r"^([a-z][a-z0-9_]*/)+$(?!\n)",
            description="folder below `prefix` for the licences of all components that are linked statically, which "
            "are packed without being listed. Default: `licenses/`",
        ),
    ] = ""
    rpaths: Annotated[
        list[Text],
        Meta(
            description="where the loader looks for what is not in the stage, relative to a file of the stage; the "
            "package's own come first"
        ),
    ] = []
    include: Annotated[list[Include], Meta(description="what the package carries of other components")] = []
    files: Annotated[
        list[LayoutRule],
        Meta(description="what it carries of the recipe's folder; `to` is the place below `prefix`"),
    ] = []


class Package(PackageFacts, frozen=True, kw_only=True):
    """An artifact to make of the stage: a tarball, or a wheel by the `pyproject.toml` beside the recipe."""

    kind: Annotated[Literal["tarball", "wheel"], Meta(description="what it becomes")]
    prefix: Annotated[
        str,
        Meta(
            pattern=r"^([a-z][a-z0-9_]*/)*$(?!\n)",
            description="folder that all files of the package are in, with a slash at the end",
        ),
    ] = ""


class Prefer(Data, frozen=True):
    """Whose file a universal stage takes where the architectures differ."""

    file: Annotated[Text, Meta(description="glob on the path in the stage")]
    arch: Annotated[Slice, Meta(description="whose file is taken")]
    reason: Annotated[Text, Meta(description="why that one is right for both")]


class Merge(Data, frozen=True):
    """How the stages of two architectures become a universal one."""

    prefer: Annotated[list[Prefer], Meta(description="files that differ, and whose is taken")] = []


class Audit(Data, frozen=True):
    """Exceptions from the audit policy, and the exports of files."""

    exempt: Annotated[list[Exemption], Meta(description="findings that are accepted, each with a reason")] = []
    exports: Annotated[
        dict[Text, ExportRule], Meta(description="what files export, by a glob on the path in the stage")
    ] = {}


class Test(Data, frozen=True):
    """How a built component is tested besides CTest: pytest in its `tests/`, with a server."""

    server: Annotated[
        Name,
        Meta(
            description="a component with a release for Linux that has a tritonserver; for a project in upstream's "
            "sources, a server which carries it"
        ),
    ]


class Recipe(Data, frozen=True):
    """One component, repackaged from `sources` or built by `build`.

    In layouts, links, fixes and packages `{version}` and `{arch}` stand for those of the release. A recipe that
    `macbuild.recipe.load` has read is complete: `shared`, `every_release` and `every_package` are merged into the rest.
    """

    schema: Annotated[Literal[1], Meta(description="version of this format")]
    name: Annotated[Name, Meta(description="the name of the folder, and of the artifact")]
    summary: Annotated[Text, Meta(description="one line, for lists and the SBOM")]
    homepage: Annotated[Text, Meta(description="where to read about it")]
    license: Annotated[Text, Meta(description="SPDX expression")]
    shared: Annotated[
        str,
        Meta(
            description="a file with releases, layouts, definitions and options that several components have in "
            "common, by its path from the recipe's folder"
        ),
    ] = ""
    every_release: Annotated[
        EveryRelease, Meta(description="what all releases have in common, for a component with several")
    ] = EveryRelease()
    releases: Annotated[
        list[Release],
        Meta(
            min_length=1,
            description="the versions that can be built; the newest that has the architecture is the default",
        ),
    ] = msgspec.field(default_factory=list)
    layouts: Annotated[
        dict[Name, list[LayoutRule | Name]],
        Meta(
            description="by name: which files of an unpacked source make the stage; a name in the list stands for the "
            "rules of that layout, `{folder}` for the folder that the source names"
        ),
    ] = {}
    links: Annotated[list[Link], Meta(description="symbolic links that are added to the stage")] = []
    build: Annotated[
        Build | None,
        Meta(description="how it is compiled; a component has either this or sources for each architecture"),
    ] = None
    test_only: Annotated[
        bool, Meta(description="only tests are linked with it, so that no package carries its licence")
    ] = False
    every_package: Annotated[
        PackageFacts, Meta(description="what all packages have in common, for a component with several")
    ] = PackageFacts()
    packages: Annotated[
        list[Package] | None,
        Meta(
            description="the artifacts that are made of the stage. Default: one tarball; an empty list keeps the stage "
            "for other components and for tests"
        ),
    ] = None
    fix: Annotated[FixRules, Meta(description="exceptions from the rules of the fix step")] = FixRules()
    merge: Annotated[Merge, Meta(description="how two architectures become universal2")] = Merge()
    audit: Annotated[Audit, Meta(description="exceptions from the audit policy, and the exports of files")] = Audit()
    test: Annotated[Test | None, Meta(description="how `macbuild test` tests it")] = None

    def release(self, version: str | None, arch: Arch) -> Release:
        """Return the release that was asked for, or the newest that has the architecture if the version is None.

        Raises
        ------
        PlanError
            If there is none, with the reason and the nearest possible choice.
        """
        possible = [release for release in self.releases if release.serves(arch)]
        possible.sort(key=lambda release: parse_version(release.version))
        if version is None:
            if possible:
                return possible[-1]
            raise PlanError(f"no release of {self.name} has {arch}", where=self.name, hint=self.choices())
        release = self.exact(version)
        if release.serves(arch):
            return release
        needed = ("x86_64", "arm64") if arch == "universal2" else (arch,)
        missing = " and ".join(name for name in needed if not release.slice(name))
        hint = f"build {self.name}@{possible[-1].version} for {arch}" if possible else self.choices()
        so = f", so {arch} cannot be made" if arch == "universal2" else ""
        raise PlanError(f"{self.name} {version} is not published for {missing}{so}", hint=hint)

    def exact(self, version: str) -> Release:
        """Return the release of a version, or the only one if the version is empty.

        Raises
        ------
        PlanError
            If there is none, with the nearest one; or if the version is empty and there are several.
        """
        if not version and len(self.releases) == 1:
            return self.releases[0]
        if not version:
            names = ", ".join(f"{self.name}@{release.version}" for release in self.releases)
            raise PlanError(
                "has several releases, so the version must be given", where=self.name, hint=f"one of {names}"
            )
        wanted = parse_version(version) if re.fullmatch(DOTTED, version) else ()
        for release in self.releases:
            if parse_version(release.version) == wanted:
                return release
        known = [release.version for release in self.releases]
        raise PlanError(f"there is no release {version}", where=self.name, hint=nearest(version, known))

    def layout(self, candidate: Candidate, names: Mapping[str, str]) -> list[LayoutRule]:
        """Return the rules that arrange what a source unpacks to.

        Parameters
        ----------
        candidate
            The source.
        names
            What placeholders stand for, besides those of the source.

        Raises
        ------
        PlanError
            If a layout contains itself or one that is unknown.
        """
        (folder,) = filled([candidate.folder], {**names, "package_version": getattr(candidate.fetch, "version", "")})
        return filled(list(self._rules(candidate.layout, ())), {**names, "folder": folder})

    def _rules(self, layout: str, within: tuple[str, ...]) -> Iterator[LayoutRule]:
        if layout in within:
            raise PlanError(f"the layout {layout!r} contains itself", where=self.name)
        if layout not in self.layouts:
            raise PlanError(f"there is no layout {layout!r}", where=self.name, hint=nearest(layout, list(self.layouts)))
        for rule in self.layouts[layout]:
            if isinstance(rule, str):
                yield from self._rules(rule, (*within, layout))
            else:
                yield rule

    @property
    def artifacts(self) -> list[Package]:
        """The packages that are made of the component."""
        return [Package(kind="tarball", name=self.name, licenses=LICENSES)] if self.packages is None else self.packages

    @property
    def tarball(self) -> Package | None:
        """The tarball that is made of the component."""
        return next((package for package in self.artifacts if package.kind == "tarball"), None)

    @property
    def wanted(self) -> bool:
        """True if it is built when everything is: as an artifact, or as a library for other components."""
        return bool(self.artifacts) or bool(self.build and self.build.consumer)

    def choices(self) -> str:
        """Return what can be built, as a hint."""
        rows = []
        for release in self.releases:
            archs = [arch for arch in ("arm64", "x86_64") if release.slice(arch)]
            if archs:
                rows.append(f"{release.version} ({', '.join(archs)})")
        if rows:
            return f"{self.name} can be built as {'; '.join(rows)}"
        if any(release.source for release in self.releases):
            return f"{self.name} is a source that others are built from"
        return f"{self.name} serves tests on Linux alone"
