"""Locate the recipes, the lock, the store and `dist/` of a run, and turn the settings into a request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from macbuild.config import Settings, data_root
from macbuild.epoch import source_date_epoch
from macbuild.errors import MacbuildError, UsageError
from macbuild.events import Emit
from macbuild.plan.model import BuildRequest
from macbuild.plan.planner import Planner
from macbuild.recipe.load import Recipes, load_recipes
from macbuild.recipe.lock import Lock, load_lock
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
    def recipes_folder(self) -> Path:
        """The folder of the recipes."""
        if self.settings.recipes is not None:
            return self._path(self.settings.recipes)
        return data_root(self.start) / "recipes"

    @cached_property
    def lock_path(self) -> Path:
        """The lock file."""
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
        """All recipes by name."""
        return load_recipes(self.recipes_folder)

    @cached_property
    def lock(self) -> Lock:
        """The lock."""
        return load_lock(self.lock_path)

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
        return folders

    @cached_property
    def choice(self) -> Choice:
        """Options of components that the user wants, and does not want."""
        choice = Choice(tuple(self.settings.wanted_options), tuple(self.settings.unwanted_options))
        choice.check(recipe.build.options for recipe in self.recipes.values() if recipe.build)
        return choice

    def request(self, components: Sequence[str], *, pack: bool = True) -> BuildRequest:
        """Return the request for components given as `name` or `name@version`.

        Without a component it asks for all that make an artifact or are libraries for others; without `pack`, only for
        fixed stages.
        """
        pairs = []
        for text in components or [name for name, recipe in self.recipes.items() if recipe.wanted]:
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
        )

    def _path(self, text: str) -> Path:
        return self.start / Path(text).expanduser()
