"""Locate the recipes, the lock, the store and `dist/` of a run, and turn the settings into a request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from macbuild.config import Settings, bad_setting, bundled, is_installed, project_root
from macbuild.epoch import source_date_epoch
from macbuild.errors import MacbuildError, RecipeError, UsageError
from macbuild.events import Emit
from macbuild.plan.model import BuildRequest
from macbuild.plan.planner import Planner
from macbuild.recipe.load import Recipes, load_recipes
from macbuild.recipe.lock import Lock, load_lock, lock_command
from macbuild.recipe.model import Recipe
from macbuild.recipe.options import Choice
from macbuild.steps.context import Context
from macbuild.store import Store
from macbuild.target import Arch, Host, detect_host, parse_arch, parse_deployment

__all__ = ["Project"]


@dataclass(frozen=True)
class Project:
    """Hold the folders and files that a run works with.

    Parameters
    ----------
    settings
        What the user asked for.
    environ
        The environment.
    start
        The working directory.
    """

    settings: Settings
    environ: Mapping[str, str]
    start: Path

    @cached_property
    def root(self) -> Path | None:
        """The folder of the project, None outside of one."""
        return project_root(self.start)

    @cached_property
    def recipes_folder(self) -> Path:
        """The folder of the project's recipes, which need not be there; outside of a project, of those of macbuild."""
        if self.settings.recipes is not None:
            return self._path(self.settings.recipes)
        return bundled("recipes") if self.root is None else self.root / "recipes"

    @cached_property
    def lock_path(self) -> Path:
        """The lock file of these recipes, which need not be there."""
        if self.settings.lock is not None:
            return self._path(self.settings.lock)
        return self.recipes_folder.parent / "macbuild.lock"

    @cached_property
    def dist(self) -> Path:
        """The folder that receives artifacts."""
        return self._path(self.settings.dist)

    @cached_property
    def store(self) -> Store:
        """The store."""
        if self.settings.cache_dir is not None:
            return Store(self._path(self.settings.cache_dir))
        import platformdirs

        return Store(platformdirs.user_cache_path("macbuild"))

    @cached_property
    def recipes(self) -> Recipes:
        """All recipes by name: the project's, and those of macbuild that they do not replace."""
        folder, shipped = self.recipes_folder, bundled("recipes")
        if self.settings.recipes is not None and not folder.is_dir():
            given = (self.settings.recipes, self.environ, self.start)
            hint = "point it at a folder of <name>/recipe.toml"
            raise bad_setting("recipes", f"{folder} is not a folder", given, hint)
        if _same(folder, shipped):
            return load_recipes(folder)
        recipes = load_recipes(folder, lambda: load_recipes(shipped))
        if not recipes.own and self.settings.recipes is not None:
            hint = "point --recipes at a folder of <name>/recipe.toml"
            raise RecipeError("there is no recipe", where=folder, hint=hint)
        return recipes

    @cached_property
    def own_lock(self) -> Lock:
        """The lock at `lock_path`; no pins if it is not there, unless it was named."""
        if self.settings.lock is None and not self.lock_path.exists():
            return Lock()
        return load_lock(self.lock_path, self.lock_command())

    @cached_property
    def shipped_lock(self) -> Lock:
        """The pins of macbuild's own recipes; none if the project has these recipes itself."""
        if _same(self.recipes_folder, bundled("recipes")):
            return Lock()
        return load_lock(bundled("macbuild.lock"))

    @cached_property
    def lock(self) -> Lock:
        """The pins that a run uses: the project's, and macbuild's for recipes that the project does not replace."""
        shipped = [entry for entry in self.shipped_lock.pinned if entry.component not in self.recipes.own]
        return Lock(pinned=[*self.own_lock.pinned, *shipped], unpinned=self.own_lock.unpinned)

    def lock_command(self, *words: str) -> str:
        """Return the command that writes the lock of this project, for hints."""
        if self.root is None and self.settings.recipes is None and self.settings.lock is None:
            return f"macbuild init && {lock_command(*words)}"
        places = {"--recipes": self.settings.recipes, "--lock": self.settings.lock}
        named = [word for flag, place in places.items() if place is not None for word in (flag, place)]
        return lock_command(*words, *named)

    def locked_recipes(self, lock: Lock, names: Sequence[str] = ()) -> dict[str, Recipe]:
        """Return the recipes whose pins belong in a lock of the project: its own, and those of macbuild that it names.

        Parameters
        ----------
        lock
            The lock.
        names
            Only these components.

        Raises
        ------
        PlanError
            There is no recipe of a name.
        """
        if names:
            return {name: self.recipes.known(name) for name in names}
        listed = {entry.component for entry in (*lock.pinned, *lock.unpinned)} - self.recipes.own.keys()
        return {**self.recipes.own, **{name: self.recipes[name] for name in sorted(listed) if name in self.recipes}}

    def check_writable(self, path: Path) -> None:
        """Refuse to write a lock or a recipe where there is no project, or into an installed macbuild."""
        hint = "make a project with: macbuild init"
        if self.settings.recipes is None and self.settings.lock is None and self.root is None:
            raise UsageError("this folder is not in a project", where=self.start, hint=hint)
        if is_installed(path):
            raise UsageError("belongs to the installed macbuild, which is never changed", where=path, hint=hint)

    @cached_property
    def host(self) -> Host:
        """The machine."""
        return detect_host()

    @property
    def arch(self) -> Arch:
        """The architecture that is built for."""
        return parse_arch(self.settings.arch) if self.settings.arch else self.host.default_arch

    @property
    def jobs(self) -> int:
        """Number of steps and threads that run at once."""
        return self.settings.jobs or os.cpu_count() or 1

    def planner(self, unavailable: Mapping[str, MacbuildError] | None = None) -> Planner:
        """Return a planner that leaves out sources that cannot be reached."""
        lenient = self.settings.skip_unreachable or self.settings.keep_going
        return Planner(
            self.recipes,
            self.lock,
            self.store,
            self.environ,
            unavailable or {},
            refuse=lenient,
            folders=self.source_folders,
            choice=self.choice,
            lock_command=self.lock_command,
        )

    @cached_property
    def source_folders(self) -> dict[str, Path]:
        """Folders that the user gave as sources, by component."""
        folders = {}
        for text in self.settings.sources:
            component, _, folder = text.partition("=")
            recipe = self.recipes.known(component)
            if not any(release.source for release in recipe.releases):
                raise UsageError("has no source that could be replaced by a folder", where=f"--source {text}")
            folders[component] = self._path(folder)
            if not folders[component].is_dir():
                given = (self.settings.sources, self.environ, self.start)
                hint = "give the top folder of the component's sources"
                raise bad_setting("sources", f"{folders[component]} is not a folder", given, hint)
        return folders

    @cached_property
    def choice(self) -> Choice:
        """Options of components that the user wants, and does not want."""
        choice = Choice(tuple(self.settings.wanted_options), tuple(self.settings.unwanted_options))
        if choice != Choice():
            choice.check(recipe.build.options for recipe in self.recipes.values() if recipe.build)
        return choice

    def request(self, components: Sequence[str], *, pack: bool = True) -> BuildRequest:
        """Return the request for components given as `name` or `name@version`.

        Without a component it asks for all of the project that make an artifact or are libraries for others, or for
        all of macbuild's if the project has no recipes; without `pack`, only for fixed stages.
        """
        pairs = []
        all_of = self.recipes.own or self.recipes
        for text in components or [name for name, recipe in all_of.items() if recipe.wanted]:
            name, at, version = text.partition("@")
            if not name or (at and not version):
                raise UsageError(f"{text!r} is not a component", hint="write it as libtorch or libtorch@2.2.2")
            pairs.append((name, version or None))
        deployment = self.settings.deployment_target
        return BuildRequest(
            tuple(dict.fromkeys(pairs)),
            self.arch,
            parse_deployment(deployment) if deployment else None,
            self.settings.policy,
            source_date_epoch(self.environ),
            None if self.settings.toolchain == "auto" else self.settings.toolchain,
            pack,
        )

    def context(self, emit: Emit) -> Context:
        """Return what steps need to run."""
        return Context(
            self.store,
            self.recipes,
            self.jobs,
            emit,
            offline=self.settings.offline,
            mirrors=self.settings.mirrors,
            epoch=source_date_epoch(self.environ),
            lock_command=self.lock_command,
        )

    def _path(self, text: str) -> Path:
        return self.start / Path(text).expanduser()


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
