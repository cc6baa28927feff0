"""Recipes: what a component is, where its bytes come from, and what is special about them, as typed data."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from macbuild.audit.model import Exemption, ExportRule
from macbuild.data import Data, load_toml, nearest
from macbuild.errors import PlanError, RecipeError
from macbuild.fetch.sources import Source
from macbuild.options import Option
from macbuild.target import Arch, parse_version

__all__ = [
    "ANY",
    "PLACEHOLDER",
    "Audit",
    "Build",
    "Candidate",
    "External",
    "Include",
    "Install",
    "Link",
    "Package",
    "Prefer",
    "Recipe",
    "Release",
    "Repair",
    "Slice",
    "known_recipe",
    "load_recipe",
    "load_recipes",
]

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$(?!\n)")]
_DOTTED = r"^[0-9]{1,9}(\.[0-9]{1,9})*$"
Version = Annotated[str, msgspec.Meta(pattern=_DOTTED)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
ANY: Final = "any"
"""The architecture of a source that is compiled for all of them."""
PLACEHOLDER: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
"""What stands for a folder of a component, or for a fact of the release."""


class Candidate(Data, frozen=True):
    """A place that the bytes can come from. The first that is pinned and answers serves."""

    name: Name
    layout: Name
    fetch: Source


class Slice(Data, frozen=True):
    """What one architecture of a release needs: sources to repackage, or components, by version.

    Parameters
    ----------
    minimum_macos
        The oldest macOS that it runs on.
    sources
        Where the bytes come from, if nothing is built.
    needs
        What it is built with.
    carries
        What packages may hold beside it without its being linked to that; such a package runs from the newer of both
        minimums on.
    tools
        Components whose programs the build runs, so they are built for the machine at hand.
    trees
        Components whose sources the build reads.
    """

    minimum_macos: Version
    sources: list[Candidate] = []
    needs: dict[Name, Version] = {}
    trees: dict[Name, Version] = {}
    carries: dict[Name, Version] = {}
    tools: dict[Name, Version] = {}


class LinuxSlice(Data, frozen=True):
    """A release for Linux, which serves to test on the machine at hand and never becomes an artifact."""

    sources: Annotated[list[Candidate], msgspec.Meta(min_length=1)]


class Release(Data, frozen=True):
    """A version and the architectures that there are of it; `source` is what is compiled for each of them."""

    version: Version
    source: list[Candidate] = []
    arm64: Slice | None = None
    x86_64: Slice | None = None
    linux_x86_64: LinuxSlice | None = None

    def slice(self, arch: str) -> Slice | None:
        """Return what there is for a thin architecture of macOS."""
        return self.arm64 if arch == "arm64" else self.x86_64

    def sources(self, arch: str) -> list[Candidate]:
        """Return the sources of an architecture of macOS, of `linux_x86_64`, or of what is compiled for `ANY`."""
        if arch == ANY:
            return self.source
        part = self.linux_x86_64 if arch == "linux_x86_64" else self.slice(arch)
        return part.sources if part else []

    def serves(self, arch: Arch) -> bool:
        """Whether every slice of the architecture is there."""
        return all(self.slice(name) for name in (("x86_64", "arm64") if arch == "universal2" else (arch,)))


class Install(Data, frozen=True):
    """Files of the unpacked source that go into the stage.

    `source` is a glob in which `**` crosses folders. With a `to` that ends in a slash, matches keep their path below
    the glob's fixed part; otherwise `source` is one file and `to` its new path. Matching nothing is an error.
    """

    source: Text = msgspec.field(name="from")
    to: str
    exclude: list[Text] = []
    reason: str = ""


class Link(Data, frozen=True):
    """A symbolic link in the stage."""

    path: Text
    target: Text
    reason: Text


class Dependency(Data, frozen=True):
    """A dependency that must be renamed in a way the general rule does not know. `match` is a glob."""

    match: Text
    to: Text
    reason: Text


class Identity(Data, frozen=True):
    """An install name other than `@rpath/<file>`. `file` is a glob on the path in the stage."""

    file: Text
    id: Text
    reason: Text


class External(Data, frozen=True):
    """A dependency that is not in the stage, by a glob on its name, and who provides it."""

    match: Text
    reason: Text


class Repair(Data, frozen=True):
    """Exceptions from the general rules of the fix step."""

    ids: list[Identity] = []
    dependencies: list[Dependency] = []
    external: list[External] = []


class Shared(Data, frozen=True):
    """What several recipes' builds have in common: CMake cache variables, and options."""

    definitions: dict[Text, str] = {}
    options: dict[Name, Option] = {}


class Build(Data, frozen=True):
    """A CMake project in the recipe's folder, or in a source that is not ours.

    In definitions, `project` and `install`, `{name}` is the folder of a component's source or stage; `{version}` and
    `{arch}` stand for those of the release.

    Parameters
    ----------
    inputs
        Globs on all files that the result depends on, below the recipe's folder or, with `../`, that of another one.
    project
        Folder of the project in a source, as `{core}/src`; the recipe's own if empty.
    definitions
        CMake cache variables.
    shared
        A file with more definitions and options, by its path from the recipe's folder.
    options
        What a user may leave out or ask for.
    install
        What of the project's installation goes into the stage, and of sources, as `{core}/LICENSE`; all of the first
        if there is no rule.
    python_packages
        For a build on the host: components whose files the installed Python package of the given name has.
    consumer
        For a library that only other components use: folder of a CMake project that uses it as they do. What that
        installs is audited for macOS, and its tests are run on the host.
    """

    inputs: list[Text] = []
    project: str = ""
    definitions: dict[Text, str] = {}
    shared: str = ""
    options: dict[Name, Option] = {}
    install: list[Install] = []
    python_packages: dict[Name, Text] = {}
    consumer: str = ""


class Include(Data, frozen=True):
    """Files of a needed component that a package carries.

    `from` and `to` are as in a layout. With `packed` they are taken from the component's tarball, with all that it
    holds, and what the audit must know of that counts here, too.
    """

    component: Name
    source: Text = msgspec.field(name="from")
    to: str
    exclude: list[Text] = []
    packed: bool = False


class Package(Data, frozen=True):
    """An artifact to make of the stage: a tarball, or a wheel by the `pyproject.toml` beside the recipe.

    Parameters
    ----------
    name
        Name of the distribution; the file's name begins with it.
    prefix
        Folder that the stage lies in, with a slash at the end.
    rpaths
        Where the loader looks for what is not in the stage, relative to a file of the stage.
    include
        What the package carries of needed components.
    files
        What it carries of the recipe's folder.
    """

    kind: Literal["tarball", "wheel"]
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]*$(?!\n)")]
    prefix: Annotated[str, msgspec.Meta(pattern=r"^([a-z][a-z0-9_]*/)*$(?!\n)")] = ""
    rpaths: list[Text] = []
    include: list[Include] = []
    files: list[Install] = []


class Prefer(Data, frozen=True):
    """Whose file a universal stage takes where the architectures differ. `file` is a glob on the path in the stage."""

    file: Text
    arch: Literal["arm64", "x86_64"]
    reason: Text


class Merge(Data, frozen=True):
    """How the stages of two architectures become a universal one."""

    prefer: list[Prefer] = []


class Audit(Data, frozen=True):
    """What the audit must know of the component: exceptions from the policy, and what its files export, by glob."""

    exempt: list[Exemption] = []
    exports: dict[Text, ExportRule] = {}


class Test(Data, frozen=True):
    """How a built component is tested besides CTest: pytest in its `tests/`, with a component that has a server.

    For a project in upstream's sources that is a server which carries it.
    """

    server: Name


class Recipe(Data, frozen=True):
    """One component, repackaged from `sources` or built by `build`.

    In layouts, links, repairs and packages `{version}` and `{arch}` stand for those of the release. Without `packages`
    the stage becomes one tarball with the component's name; an empty list keeps it for other components and for tests.
    """

    schema: Literal[1]
    name: Name
    summary: Text
    homepage: Text
    license: Text
    releases: Annotated[list[Release], msgspec.Meta(min_length=1)]
    layouts: dict[Name, list[Install]] = {}
    links: list[Link] = []
    build: Build | None = None
    packages: list[Package] | None = None
    repair: Repair = Repair()
    merge: Merge = Merge()
    audit: Audit = Audit()
    test: Test | None = None

    def release(self, version: str | None, arch: Arch) -> Release:
        """Return the release that was asked for, or the newest that has the architecture.

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
        """Return the release of a version; a `PlanError` with the nearest one if there is none."""
        wanted = parse_version(version) if re.fullmatch(_DOTTED, version) else ()
        for release in self.releases:
            if parse_version(release.version) == wanted:
                return release
        known = [release.version for release in self.releases]
        raise PlanError(f"there is no release {version}", where=self.name, hint=nearest(version, known))

    @property
    def artifacts(self) -> list[Package]:
        """The packages that are made of the component."""
        return [Package(kind="tarball", name=self.name)] if self.packages is None else self.packages

    @property
    def tarball(self) -> Package | None:
        """The tarball that is made of the component."""
        return next((package for package in self.artifacts if package.kind == "tarball"), None)

    @property
    def wanted(self) -> bool:
        """Whether it is made when everything is: as an artifact, or as a library for other components."""
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


def load_recipe(path: Path) -> Recipe:
    """Read and check one recipe.

    Raises
    ------
    RecipeError
        With the file, the key and the nearest valid key.
    """
    recipe = _with_shared(load_toml(path, Recipe, RecipeError), path)
    if recipe.name != path.parent.name:
        raise RecipeError(f"name is {recipe.name!r}, the folder is {path.parent.name!r}", where=path)
    versions = [parse_version(release.version) for release in recipe.releases]
    if len(set(versions)) != len(versions):
        raise RecipeError("a version stands twice in releases", where=path)
    for release in recipe.releases:
        for arch in (ANY, "arm64", "x86_64", "linux_x86_64"):
            _check_sources(recipe, release, arch, path)
    _check_build(recipe, path)
    kinds = [package.kind for package in recipe.artifacts]
    if len(set(kinds)) != len(kinds):
        raise RecipeError("two packages of one kind", where=path)
    if "wheel" in kinds and not (path.parent / "pyproject.toml").is_file():
        raise RecipeError("a wheel is asked for, and there is no pyproject.toml beside the recipe", where=path)
    return recipe


def _with_shared(recipe: Recipe, path: Path) -> Recipe:
    """Return a recipe with what its build shares with others; its own definitions and options are stronger."""
    if recipe.build is None or not recipe.build.shared:
        return recipe
    shared = load_toml(path.parent / recipe.build.shared, Shared, RecipeError)
    build = msgspec.structs.replace(
        recipe.build,
        definitions={**shared.definitions, **recipe.build.definitions},
        options={**shared.options, **recipe.build.options},
    )
    return msgspec.structs.replace(recipe, build=build)


def _check_build(recipe: Recipe, path: Path) -> None:
    """Refuse a build of nothing, and a `{name}` that stands for no component that the build sees."""
    build = recipe.build
    if build is None:
        return
    if not build.inputs and not build.project:
        raise RecipeError("build.inputs is empty, and build.project names no source", where=path)
    parts = [part for release in recipe.releases for part in (release.arm64, release.x86_64) if part is not None]
    sources = {recipe.name, "version", "arch"}.union(*(part.trees for part in parts))
    places = sources.union(*(part.needs for part in parts), *(option.needs for option in build.options.values()))
    values = [*build.definitions.values()]
    for name, option in build.options.items():
        values += [*option.on.values(), *option.off.values()]
        for other in option.requires:
            if other not in build.options:
                hint = nearest(other, list(build.options))
                raise RecipeError(f"{name} requires {other!r}, which is no option", where=path, hint=hint)
    _check_placeholders([build.project, *(rule.source for rule in build.install)], sources, "source", path)
    _check_placeholders(values, places, "component", path)


def _check_placeholders(texts: Iterable[str], known: Collection[str], what: str, path: Path) -> None:
    for name in (name for text in texts for name in PLACEHOLDER.findall(text)):
        if name not in known:
            hint = nearest(name, sorted(known))
            raise RecipeError(f"{{{name}}} is no {what} that the build sees", where=path, hint=hint)


def _check_sources(recipe: Recipe, release: Release, arch: str, path: Path) -> None:
    """Refuse two sources of one name, an unknown layout, and a release that is neither repackaged nor built."""
    sources = release.sources(arch)
    where = f"releases {release.version} {arch}"
    if len({candidate.name for candidate in sources}) != len(sources):
        raise RecipeError(f"two sources of {release.version} for {arch} have the same name", where=path)
    for candidate in sources:
        if candidate.layout not in recipe.layouts:
            hint = nearest(candidate.layout, list(recipe.layouts))
            problem = f"{where} {candidate.name} has the unknown layout {candidate.layout!r}"
            raise RecipeError(problem, where=path, hint=hint)
    part = release.slice(arch) if arch in ("arm64", "x86_64") else None
    if arch == ANY and sources and not recipe.build and (release.arm64 or release.x86_64):
        raise RecipeError(f"releases {release.version} has a source to compile, and there is no [build]", where=path)
    if part is not None and bool(sources) == bool(recipe.build):
        hint = "a component has either [build], or sources for each architecture"
        raise RecipeError(f"{where} has {'sources and a build' if sources else 'no sources'}", where=path, hint=hint)
    words = [word for word in ("needs", "carries", "tools", "trees") if part is not None and getattr(part, word)]
    if words and not recipe.build:
        raise RecipeError(f"{where} has {words[0]}, and the recipe has no [build] to use them", where=path)


def load_recipes(folder: Path) -> dict[str, Recipe]:
    """Read all recipes of a folder, by name in order of name; none at all is a `RecipeError`."""
    try:
        paths = sorted(folder.glob("*/recipe.toml"))
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=folder) from error
    recipes = {path.parent.name: load_recipe(path) for path in paths}
    if not recipes:
        raise RecipeError("there is no recipe", where=folder, hint="point --recipes at a folder of <name>/recipe.toml")
    return recipes


def known_recipe(recipes: Mapping[str, Recipe], name: str) -> Recipe:
    """Return the recipe of a name; a `PlanError` with the nearest one if there is none."""
    recipe = recipes.get(name)
    if recipe is None:
        raise PlanError(f"there is no recipe {name!r}", hint=nearest(name, list(recipes)))
    return recipe
