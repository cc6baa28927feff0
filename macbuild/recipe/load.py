"""Read recipes from files, with everything checked that a schema cannot say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from macbuild.data import PLACEHOLDER, filled
from macbuild.documents import Keys, load_document, place, place_of
from macbuild.errors import PlanError, RecipeError, nearest
from macbuild.recipe.complete import complete
from macbuild.recipe.model import Build, Recipe
from macbuild.recipe.release import ANY, SLICES, Release, ReleaseFacts, references
from macbuild.target import parse_version

__all__ = ["Recipes", "load_recipe", "load_recipes", "recipe_paths"]


def load_recipe(path: Path) -> Recipe:
    """Read one recipe, complete it and check it.

    Raises
    ------
    RecipeError
        With the file, the line, the key and the nearest valid key.
    """
    recipe = complete(load_document(path, Recipe, RecipeError), path)
    if recipe.name != path.parent.name:
        where = place(path, "name")
        raise RecipeError(f"name is {recipe.name!r}, the folder is {path.parent.name!r}", where=where)
    versions = [parse_version(release.version) for release in recipe.releases]
    if (index := _repeated(versions)) is not None:
        raise RecipeError("a version is listed twice in releases", where=place(path, "releases", index, "version"))
    for release in recipe.releases:
        for arch in (ANY, *SLICES, "linux_x86_64"):
            _check_sources(recipe, release, arch, path)
        if recipe.build is None:
            _check_repackaged(release, path, recipe.releases.index(release))
    _check_build(recipe, path)
    kinds = [package.kind for package in recipe.artifacts]
    if (index := _repeated(kinds)) is not None:
        raise RecipeError("there are two packages of one kind", where=place(path, "packages", index, "kind"))
    if recipe.every_package != type(recipe.every_package)() and not recipe.packages:
        where = place(path, "every_package")
        raise RecipeError("every_package has facts, and there are no packages to have them", where=where)
    if "wheel" in kinds and not (path.parent / "pyproject.toml").is_file():
        where = place(path, "packages", kinds.index("wheel"))
        raise RecipeError("a wheel is wanted, and there is no pyproject.toml beside the recipe", where=where)
    _check_exemptions(recipe, path)
    return recipe


def _repeated(values: Sequence[object]) -> int | None:
    """Return the position of the first value that is in a list before, if there is one."""
    return next((index for index, value in enumerate(values) if value in values[:index]), None)


def _check_exemptions(recipe: Recipe, path: Path) -> None:
    """Refuse exemptions from rules that do not exist."""
    if recipe.audit.exempt:
        from macbuild.audit.catalogue import RULES

        for index, exemption in enumerate(recipe.audit.exempt):
            if exemption.rule not in RULES:
                where = place(path, "audit", "exempt", index, "rule")
                hint = nearest(exemption.rule, list(RULES))
                raise RecipeError(f"audit.exempt has the unknown rule {exemption.rule!r}", where=where, hint=hint)


class _OwnRecipes(Mapping[str, Recipe]):
    """Recipes by name, each read when it is needed, so that a broken one is in the way of nothing else."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self._read: dict[str, Recipe] = {}

    def __getitem__(self, name: str) -> Recipe:
        if name not in self._read:
            self._read[name] = load_recipe(self.folders[name] / "recipe.toml")
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self.folders

    def __iter__(self) -> Iterator[str]:
        return iter(self.folders)

    def __len__(self) -> int:
        return len(self.folders)


class Recipes(Mapping[str, Recipe]):
    """Recipes by name, and where each lies: those of a project, over those that it is based on.

    A component is a folder with `recipe.toml`, directly below the root or below a folder that groups several. A recipe
    that is not valid is a `RecipeError` when it is asked for.

    Parameters
    ----------
    root
        The folder that all of the project's lie in.
    folders
        The folder of each component.
    base
        Returns the recipes that those of the project are added to, or replace; called when one of them is needed.
    """

    def __init__(self, root: Path, folders: Mapping[str, Path], base: Callable[[], Recipes] | None = None) -> None:
        self.root = root
        self.own: Mapping[str, Recipe] = _OwnRecipes(folders)
        """The project's own recipes."""
        self._folders = dict(folders)
        self._load_base = base

    def __getitem__(self, name: str) -> Recipe:
        """Return a recipe by name."""
        return self.own[name] if name in self.own or self._base is None else self._base[name]

    def __contains__(self, name: object) -> bool:
        """Tell if there is a recipe of a name, valid or not."""
        return name in self.own or (self._base is not None and name in self._base)

    def __iter__(self) -> Iterator[str]:
        """Yield the names in order."""
        return iter(sorted({*self.own, *(self._base or ())}))

    def __len__(self) -> int:
        """Return how many there are."""
        return len({*self.own, *(self._base or ())})

    @cached_property
    def _base(self) -> Recipes | None:
        return self._load_base() if self._load_base else None

    def root_of(self, name: str) -> Path:
        """Return the folder that a component and all that it may be built from lie in."""
        return self.root if name in self.own or self._base is None else self._base.root

    def groups(self, name: str) -> list[Path]:
        """Return the folders that a component may be built from: the root, and each folder that groups components."""
        if name not in self.own and self._base is not None:
            return self._base.groups(name)
        borrowed = self._base.groups(name) if self._base is not None else []
        return sorted({self.root, *(folder.parent for folder in self._folders.values()), *borrowed})

    def lenders(self, build: Build) -> dict[str, Recipe]:
        """Return the components whose inputs a build borrows, and those that these borrow from, by name.

        Raises
        ------
        PlanError
            There is no such component, or it is repackaged.
        """
        found: dict[str, Recipe] = {}
        waiting = build.borrowed
        while waiting:
            name = waiting.pop(0)
            if name in found:
                continue
            found[name] = self.known(name)
            lent = found[name].build
            if lent is None:
                raise PlanError("is repackaged, so it has no inputs that could be borrowed", where=name)
            waiting += lent.borrowed
        return found

    def located(self, build: Build) -> Build:
        """Return a build with only its own inputs, and with the folders of what it borrows in its definitions."""
        if not build.borrowed:
            return build
        folders = {name: str(self.folder(name)) for name in self.lenders(build)}
        (definitions,) = filled([build.definitions], folders)
        return msgspec.structs.replace(build, inputs=build.own_inputs, definitions=definitions)

    def folder(self, name: str) -> Path:
        """Return the folder of a component."""
        return self._folders[name] if name in self.own or self._base is None else self._base.folder(name)

    def edits(self, name: str) -> Path:
        """Return the folder of the edits of a component, which need not be there."""
        return self.root_of(name).parent / "patches" / name

    def known(self, name: str) -> Recipe:
        """Return the recipe of a name; a `PlanError` with the nearest one if there is none."""
        if name not in self:
            raise PlanError(f"there is no recipe {name!r}", hint=nearest(name, list(self)))
        return self[name]


def recipe_paths(root: Path) -> list[Path]:
    """Return the recipe files below a folder, in order of the components' names."""
    try:
        paths = [*root.glob("*/recipe.toml"), *root.glob("*/*/recipe.toml")]
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=root) from error
    return sorted(paths, key=lambda path: path.parent.name)


def load_recipes(root: Path, base: Callable[[], Recipes] | None = None) -> Recipes:
    """Find all recipes below a folder, in order of name; each is read when it is needed.

    Parameters
    ----------
    root
        The folder.
    base
        Returns the recipes that those of the folder are added to, or replace.

    Raises
    ------
    RecipeError
        Two recipes have one name.
    """
    folders: dict[str, Path] = {}
    for path in recipe_paths(root):
        same = folders.setdefault(path.parent.name, path.parent)
        if same != path.parent:
            where = place(path, "name")
            raise RecipeError(f"{path.parent.name!r} is the name of two components, also in {same}", where=where)
    return Recipes(root, folders, base)


def _check_build(recipe: Recipe, path: Path) -> None:
    """Refuse a build of nothing, and a `{name}` that stands for no component that the build sees."""
    build = recipe.build
    if build is None:
        return
    if not build.inputs and not build.project:
        raise RecipeError("build.inputs is empty, and build.project names no source", where=place(path, "build"))
    parts = [part for release in recipe.releases for part in map(release.slice, SLICES) if part is not None]
    sources = {recipe.name, "version", "arch"}.union(*(part.trees for part in parts))
    needs = {name for part in parts for name in part.needs}
    needs |= {name for option in build.options.values() for name in references(option.needs)}
    for name in build.borrowed:
        if name in needs | sources:
            both = f"{name} is needed and its inputs are borrowed, so its folder is not one"
            problem = "borrows its own inputs" if name == recipe.name else both
            raise RecipeError(problem, where=place(path, "build", "inputs"))
    places = sources | needs | set(build.borrowed)
    values = [*build.definitions.values()]
    for name, option in build.options.items():
        values += [*option.on.values(), *option.off.values()]
        for other in option.requires:
            if other not in build.options:
                hint = nearest(other, list(build.options))
                where = place(path, "build", "options", name, "requires")
                raise RecipeError(f"{name} requires {other!r}, which is not an option", where=where, hint=hint)
    _check_placeholders([build.project, *(rule.source for rule in build.install)], sources, "source", path)
    _check_placeholders(values, places, "component", path)


def _check_placeholders(texts: Iterable[str], known: Collection[str], kind: str, path: Path) -> None:
    for name in (name for text in texts for name in PLACEHOLDER.findall(text)):
        if name not in known:
            hint = nearest(name, sorted(known))
            where = place_of(path, f"{{{name}}}")
            raise RecipeError(f"{{{name}}} is not a {kind} that the build sees", where=where, hint=hint)


def _check_sources(recipe: Recipe, release: Release, arch: str, path: Path) -> None:
    """Refuse two sources of one name, an unknown layout, and a release that is neither repackaged nor built."""
    sources = release.sources(arch)
    title = f"releases {release.version} {arch}"
    keys: Keys = ("releases", recipe.releases.index(release), *(["source"] if arch == ANY else [arch, "sources"]))
    if (index := _repeated([candidate.name for candidate in sources])) is not None:
        where = place(path, *keys, index, "name")
        raise RecipeError(f"two sources of {release.version} for {arch} have the same name", where=where)
    for index, candidate in enumerate(sources):
        if candidate.layout not in recipe.layouts:
            hint = nearest(candidate.layout, list(recipe.layouts))
            problem = f"{title} {candidate.name} has the unknown layout {candidate.layout!r}"
            raise RecipeError(problem, where=place(path, *keys, index, "layout"), hint=hint)
        try:
            recipe.layout(candidate, {})
        except PlanError as error:
            where = place(path, "layouts", candidate.layout)
            raise RecipeError(error.message, where=where, hint=error.hint) from error
    if arch == ANY and sources and not recipe.build and release.archs:
        problem = f"releases {release.version} has a source to compile, and there is no [build]"
        raise RecipeError(problem, where=place(path, *keys))
    if release.slice(arch) is not None and bool(sources) == bool(recipe.build):
        hint = "a component has either [build], or sources for each architecture"
        problem = f"{title} has {'sources and a build' if sources else 'no sources'}"
        raise RecipeError(problem, where=place(path, *keys), hint=hint)


def _check_repackaged(release: Release, path: Path, index: int) -> None:
    """Refuse what only a build uses, and a minimum macOS that is missing or belongs to nothing."""
    tables: dict[str, ReleaseFacts] = {"": release}
    for name in SLICES:
        own = release.own(name)
        if own is not None:
            tables[f" {name}"] = own
    for arch, facts in tables.items():
        words = [word for word in ("needs", "carries", "tools", "trees") if getattr(facts, word)]
        if words:
            problem = f"releases {release.version}{arch} has {words[0]}, and the recipe has no [build] to use them"
            raise RecipeError(problem, where=place(path, "releases", index, *arch.split(), words[0]))
        if arch and not (facts.minimum_macos or release.minimum_macos):
            where = place(path, "releases", index, *arch.split())
            raise RecipeError(f"releases {release.version}{arch} has no minimum_macos", where=where)
    if release.minimum_macos and not release.archs:
        where = place(path, "releases", index, "minimum_macos")
        raise RecipeError(f"releases {release.version} has minimum_macos, and no files for macOS", where=where)
