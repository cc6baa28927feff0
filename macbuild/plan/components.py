"""The steps from sources to the fixed stage of a component, for one architecture of macOS or for this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from macbuild.build.programs import cmake_versions
from macbuild.data import filled
from macbuild.documents import place, place_of
from macbuild.errors import LockError, PlanError, RecipeError, UnreachableError, UsageError
from macbuild.plan.builder import PlanBuilder
from macbuild.plan.keys import data_digest, policy_digest, tool_digest
from macbuild.plan.model import AuditSpec, BuildRequest, BuildSpec, FetchSpec, FixSpec, Need, Step
from macbuild.plan.sources import SourcePlanner
from macbuild.recipe.cycles import chain_text
from macbuild.recipe.inputs import inputs_digest
from macbuild.recipe.load import Recipes
from macbuild.recipe.model import Build, Recipe
from macbuild.recipe.options import Choice
from macbuild.recipe.release import Release, SliceRelease, references
from macbuild.store import digest
from macbuild.target import Arch, Target, detect_host, parse_version

if TYPE_CHECKING:
    from macbuild.build.toolchain import Toolchain

__all__ = ["ComponentPlan", "ComponentPlanner"]

# Characters of paths that CMake cannot hold. In the store, where build folders are, also those that end its strings and
# divide its lists and PATH.
_NOT_IN_PROJECTS = "\n\\"
_NOT_IN_STORES = '\n\\":;'
# Component, version, and the architecture of macOS or "host".
_Key: TypeAlias = tuple[str, str, str]


@dataclass
class ComponentPlan:
    """One architecture of a component in a plan: the step of its fixed stage, and what that is made from.

    Parameters
    ----------
    recipe, version, part
        The component.
    fixed
        The step that makes the stage.
    sources
        Where bytes came from.
    needs
        Components that it is built with.
    built, inputs, tools
        If it is built: the step that does it, size and sha256 of the component's own files, and the compilers.
    checked
        If only other components use it: the step that audits a program linked with it.
    """

    recipe: Recipe
    version: str
    part: SliceRelease
    fixed: Step
    sources: tuple[FetchSpec, ...] = ()
    needs: tuple[ComponentPlan, ...] = ()
    built: Step | None = None
    inputs: tuple[int, str] | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    checked: Step | None = None

    def closure(self) -> list[ComponentPlan]:
        """Return what it is built with, directly and indirectly, each once; a `RecipeError` for two versions of one."""
        return _closure(self.needs, f"{self.recipe.name} {self.version}")

    def static(self) -> list[ComponentPlan]:
        """Return the components of other people that it is linked with statically: those without an artifact."""
        others = [need for need in self.closure() if not need.recipe.artifacts and not need.recipe.test_only]
        return [need for need in others if need.recipe.exact(need.version).source]


@dataclass(frozen=True)
class _BuildInputs:
    """A component to be compiled for a target, or for this machine if that is None."""

    recipe: Recipe
    release: Release
    part: SliceRelease
    needs: tuple[ComponentPlan, ...]
    target: Target | None
    toolchain: str | None


@dataclass
class ComponentPlanner:
    """Adds the steps that make stages to a plan.

    Parameters
    ----------
    recipes
        What may be built.
    environ
        The environment, in which toolchains are looked for.
    sources
        Plans the source trees.
    choice
        What the user said about options.
    builder
        Receives the steps.
    """

    recipes: Recipes
    environ: Mapping[str, str]
    sources: SourcePlanner
    choice: Choice
    builder: PlanBuilder
    _plans: dict[_Key, ComponentPlan] = field(default_factory=dict)
    _path: list[_Key] = field(default_factory=list)
    _toolchains: dict[tuple[str | None, Target | None], tuple[Toolchain, str]] = field(default_factory=dict)
    _inputs: dict[tuple[str, tuple[str, ...]], tuple[int, str]] = field(default_factory=dict)

    @contextmanager
    def undone_if_out_of_reach(self) -> Iterator[None]:
        """Undo what the block adds to the plan if it needs something that is not available."""
        steps, plans, remarked = dict(self.builder.steps), dict(self._plans), len(self.builder.remarks)
        try:
            yield
        except (LockError, UnreachableError):
            self.builder.steps, self._plans = steps, plans
            del self.builder.remarks[remarked:]
            raise

    @contextmanager
    def _entered(self, key: _Key) -> Iterator[None]:
        """Refuse a component that is being planned already: it needs itself."""
        if key in self._path:
            names = [name for name, _, _ in (*self._path[self._path.index(key) :], key)]
            hint = "take one of these needs out of its recipe"
            where = self.named_in(names[0], names[1])
            raise RecipeError(f"needs itself: {chain_text(names)}", where=where, hint=hint)
        self._path.append(key)
        try:
            yield
        except PlanError:
            self._check_references(*key)
            raise
        except RecipeError as error:
            if error.where is not None:
                raise
            index = [release.version for release in self.recipes[key[0]].releases].index(key[1])
            where = place(self._file(key[0]), "releases", index)
            raise RecipeError(error.message, where=where, hint=error.hint) from error
        finally:
            self._path.pop()

    def _file(self, name: str) -> Path:
        return self.recipes.folder(name) / "recipe.toml"

    def named_in(self, name: str, other: str, version: str = "") -> str:
        """Return file and line where the recipe of a component names another one."""
        return place_of(self._file(name), f"{other}@{version}", f"{other}@{{version}}", other, f"{other}@")

    def _check_references(self, name: str, version: str, arch: str) -> None:
        """Refuse a recipe that names components or versions of them that do not exist."""
        recipe = self.recipes[name]
        part = recipe.exact(version).slice(detect_host().arch if arch == "host" else arch)
        options = recipe.build.options.values() if recipe.build else ()
        tables = [option.components for option in options]
        if part is not None:
            tables += [dict(table) for table in (part.needs, part.trees, part.tools, part.carries)]
        for table in tables:
            for other, wanted in table.items():
                try:
                    self.recipes.known(other).exact(version if wanted == "{version}" else wanted)
                except PlanError as error:
                    where = self.named_in(name, other, wanted)
                    problem = f"{error.where}: {error.message}" if error.where else error.message
                    raise RecipeError(problem, where=where, hint=error.hint) from error

    def for_macos(self, recipe: Recipe, release: Release, arch: str, request: BuildRequest) -> ComponentPlan:
        """Return the plan of a release for one architecture of macOS.

        Raises
        ------
        PlanError, LockError, UnreachableError, RecipeError, ToolError
            It cannot be made.
        """
        key = (recipe.name, release.version, arch)
        if key not in self._plans:
            with self._entered(key):
                self._plans[key] = self._for_macos(recipe, release, arch, request)
        return self._plans[key]

    def _for_macos(self, recipe: Recipe, release: Release, arch: str, request: BuildRequest) -> ComponentPlan:
        self.sources.check(recipe, release)
        part = release.slice(arch)
        assert part is not None
        recipe, part = self._chosen(recipe, release, part, lambda name, at: self.other(name, at, arch, request))
        place = f"{recipe.name}-{release.version}-macos-{arch}"
        (rules,) = filled([recipe.fix], {"version": release.version, "arch": arch})
        facts = {"recipe": data_digest(rules), "arch": arch}
        if recipe.build is None:
            source, installed = self.sources.prebuilt(recipe, release, arch, place)
            fixed = self.builder.add(f"{place}/fix", "fix", FixSpec(rules, arch), facts, [installed])
            return ComponentPlan(recipe, release.version, part, fixed, (source,))
        needs = tuple(self.other(name, version, arch, request) for name, version in part.needs.items())
        for need in needs:
            if parse_version(need.part.minimum_macos) > parse_version(part.minimum_macos):
                problem = f"needs {need.recipe.name} {need.version}, which needs macOS {need.part.minimum_macos}"
                problem = f"{release.version} for {arch} and macOS {part.minimum_macos} {problem}"
                raise RecipeError(problem, where=self.named_in(recipe.name, need.recipe.name, need.version))
        deployment = max(request.deployment or "0", part.minimum_macos, key=parse_version)
        target = Target("arm64" if arch == "arm64" else "x86_64", deployment)
        plan = self._built(_BuildInputs(recipe, release, part, needs, target, request.toolchain))
        if recipe.build.consumer:
            plan.checked = self._checked(plan, place, target, request)
            return plan
        exports = tuple((glob, tuple(rule.allow)) for glob, rule in recipe.audit.exports.items() if rule.allow)
        facts["recipe"] = digest([facts["recipe"], exports])
        spec = FixSpec(rules, arch, exports)
        plan.fixed = self.builder.add(f"{place}/fix", "fix", spec, facts, [plan.fixed])
        return plan

    def other(self, name: str, version: str, arch: str, request: BuildRequest) -> ComponentPlan:
        """Return the plan of a component that another one names; an empty version stands for its only release."""
        recipe = self.recipes.known(name)
        release = recipe.release(version, "arm64" if arch == "arm64" else "x86_64")
        return self.for_macos(recipe, release, arch, request)

    def host(self, name: str, version: str | None = None) -> ComponentPlan:
        """Return the plan of a component for this machine; its newest release if the version is None.

        Raises
        ------
        PlanError
            If it is repackaged, or has no release for such a machine.
        """
        recipe = self.recipes.known(name)
        if recipe.build is None:
            raise PlanError("is repackaged, so it cannot be built for this machine", where=name)
        arch: Arch = "arm64" if detect_host().arch == "arm64" else "x86_64"
        release = recipe.release(version, arch)
        key = (name, release.version, "host")
        if key not in self._plans:
            with self._entered(key):
                self._plans[key] = self._host(recipe, release, arch)
        return self._plans[key]

    def _host(self, recipe: Recipe, release: Release, arch: Arch) -> ComponentPlan:
        self.sources.check(recipe, release)
        part = release.slice(arch)
        assert part is not None
        recipe, part = self._chosen(recipe, release, part, self.host, self._for_host)
        needs = tuple(self.host(need, wanted) for need, wanted in part.needs.items())
        return self._built(_BuildInputs(recipe, release, part, needs, None, "host"))

    def linux(self, recipe: Recipe, release: Release) -> Step:
        """Return the step that arranges the Linux release of a component, which serves tests on this machine."""
        place = f"{recipe.name}-{release.version}-linux-x86_64"
        return self.sources.prebuilt(recipe, release, "linux_x86_64", place)[1]

    def optional(self, name: str) -> set[str]:
        """Return the components that the options of a component bring in."""
        build = self.recipes[name].build
        return {component for option in (build.options.values() if build else ()) for component in option.components}

    def _for_host(self, name: str) -> bool:
        """Return True for a component that others are put beside on this machine; our backends are tested alone."""
        build = self.recipes.known(name).build
        return build is not None and bool(build.project or build.consumer)

    def _chosen(
        self,
        recipe: Recipe,
        release: Release,
        part: SliceRelease,
        make: Callable[[str, str], ComponentPlan],
        suits: Callable[[str], bool] = lambda _: True,
    ) -> tuple[Recipe, SliceRelease]:
        """Return a recipe and its slice as the options make them.

        `make` plans a component or raises, `suits` says if what an option carries is for this target.
        """
        if recipe.build is None or not recipe.build.options:
            return recipe, part
        names = {"version": release.version, "arch": "{arch}"}
        table = {name: filled([option], names)[0] for name, option in recipe.build.options.items()}
        options = {name: option for name, option in table.items() if all(map(suits, references(option.carries)))}
        missing = []
        for name, option in options.items():
            if option.refused or name in self.choice.unwanted or not (option.default or name in self.choice.wanted):
                continue
            try:
                with self.undone_if_out_of_reach():
                    for component, version in option.components.items():
                        make(component, version)
            except (LockError, UnreachableError) as error:
                if name in self.choice.wanted:
                    raise
                missing.append(name)
                self.builder.remarks.append(f"{recipe.name} is made without {name}: {error}")
        definitions = dict(recipe.build.definitions)
        needs, carries = dict(part.needs), dict(part.carries)
        for name, on in self.choice.of(recipe.name, options, missing).items():
            definitions |= options[name].on if on else options[name].off
            needs |= references(options[name].needs) if on else {}
            carries |= references(options[name].carries) if on else {}
        build = msgspec.structs.replace(recipe.build, definitions=definitions, options={})
        recipe = msgspec.structs.replace(recipe, build=build)
        return recipe, msgspec.structs.replace(part, needs=needs, carries=carries)

    def _built(self, job: _BuildInputs) -> ComponentPlan:
        """Return the plan of a component as far as its build step."""
        recipe, release, part, target = job.recipe, job.release, job.part, job.target
        assert recipe.build is not None
        _check_path(self.recipes.root_of(recipe.name), _NOT_IN_PROJECTS, "move the project")
        _check_path(self.builder.store.root, _NOT_IN_STORES, "set MACBUILD_CACHE_DIR to another folder")
        roles: list[tuple[Need, Step]] = []
        sources: tuple[FetchSpec, ...] = ()
        port = bool(recipe.build.project)
        trees = [(self.recipes.known(name), version) for name, version in part.trees.items()]
        for other, version in [(recipe, release.version)] * bool(release.source) + trees:
            source, tree = self.sources.tree(other, other.exact(version), target, port=port)
            sources, roles = (*sources, source), [*roles, (Need(other.name, "source"), tree)]
        closure = _closure(job.needs, f"{recipe.name} {release.version}")
        roles += [(Need(need.recipe.name, "library"), need.fixed) for need in closure]
        roles += self._tools(part, without=recipe.name)
        arch = detect_host().arch if target is None else target.arch
        (build,) = filled([recipe.build], {"version": release.version, "arch": arch})
        place = f"{recipe.name}-{release.version}-{'host' if target is None else f'macos-{target.arch}'}"
        built, inputs, tools = self._build(
            recipe, build, roles, project="", place=place, target=target, toolchain_name=job.toolchain
        )
        sources = (*sources, *(source for need in closure for source in need.sources))
        return ComponentPlan(recipe, release.version, part, built, sources, job.needs, built, inputs, tools)

    def _tools(self, part: SliceRelease, without: str = "") -> list[tuple[Need, Step]]:
        wanted = {name: version for name, version in part.tools.items() if name != without}
        return [(Need(name, "tool"), self.host(name, version).fixed) for name, version in wanted.items()]

    def _build(
        self,
        recipe: Recipe,
        build: Build,
        roles: Sequence[tuple[Need, Step]],
        *,
        project: str,
        place: str,
        target: Target | None,
        toolchain_name: str | None,
    ) -> tuple[Step, tuple[int, str] | None, Mapping[str, str]]:
        toolchain, description = self._toolchain(toolchain_name, target)
        inputs = self._input_files(recipe.name, build) if build.inputs else None
        tools = {toolchain.name: description, **cmake_versions()}
        setting = {
            "recipe": data_digest(build),
            "toolchain": digest([toolchain.identity, tool_digest(toolchain.name), tools]),
            "target": str(target or "host"),
        }
        # Everything but the component's own files, so that a change of these compiles only what changed. A project in a
        # source has its files there.
        others = [pair for pair in roles if pair[0].role != "source" or not build.project]
        keys = [[need.component, need.role, step.key] for need, step in others]
        settled = digest([setting, keys])
        step = f"{place}/{'consumer' if project else 'build'}"
        # The same name for all settings: compilers are given paths in it, and so ccache knows what they did before.
        places = [self.recipes.root_of(recipe.name), *map(self.recipes.folder, self.recipes.lenders(build))]
        mark = digest(os.pathsep.join(str(place.absolute()) for place in places))[:12]
        folder = f"{step.replace('/build', '').replace('/', '-')}-{toolchain.name}-{mark}"
        needed = tuple(need for need, _ in roles)
        located = self.recipes.located(build)
        spec = BuildSpec(recipe.name, project, folder, located, target, needed, toolchain_name, settled)
        facts = {**setting, "source": inputs[1]} if inputs else setting
        return self.builder.add(step, "build", spec, facts, [made for _, made in roles]), inputs, tools

    def _toolchain(self, name: str | None, target: Target | None) -> tuple[Toolchain, str]:
        """Return a toolchain and its versions, which are asked for once."""
        from macbuild.build.toolchain import find_toolchain

        key = (name, target)
        if key not in self._toolchains:
            found = find_toolchain(name, target, self.environ)
            self._toolchains[key] = (found, found.describe())
        return self._toolchains[key]

    def _input_files(self, component: str, build: Build) -> tuple[int, str]:
        """Return size and digest of the files that a component is built from, its own and those that it borrows."""
        lenders = self.recipes.lenders(build)
        size, sha256 = self._files(component, build.own_inputs)
        if not lenders:
            return size, sha256
        borrowed = {name: self._files(name, other.build.own_inputs) for name, other in lenders.items() if other.build}
        parts = [[name, found[1]] for name, found in sorted(borrowed.items())]
        return size + sum(found[0] for found in borrowed.values()), digest([sha256, parts])

    def _files(self, component: str, globs: Sequence[str]) -> tuple[int, str]:
        key = (component, tuple(globs))
        if key not in self._inputs:
            try:
                digested = inputs_digest(self.recipes.root_of(component), self.recipes.folder(component), globs)
            except RecipeError as error:
                named = [glob for glob in globs if repr(glob) in error.message]
                where = place_of(self._file(component), *named)
                raise RecipeError(error.message, where=where, hint=error.hint) from error
            self._inputs[key] = digested
        return self._inputs[key]

    def _checked(self, plan: ComponentPlan, place: str, target: Target, request: BuildRequest) -> Step:
        """Return the step that audits the program that is linked with a library, as its users link it."""
        recipe = plan.recipe
        assert recipe.build is not None
        consumer = Build(inputs=[f"{recipe.build.consumer}/**/*"])
        roles = [(Need(other.recipe.name, "library"), other.fixed) for other in (plan, *plan.closure())]
        roles += self._tools(plan.part)
        built, _, _ = self._build(
            recipe,
            consumer,
            roles,
            project=recipe.build.consumer,
            place=place,
            target=target,
            toolchain_name=request.toolchain,
        )
        facts = {"recipe": data_digest(recipe.fix), "arch": target.arch}
        fixed = self.builder.add(f"{place}/fix", "fix", FixSpec(recipe.fix, target.arch), facts, [built])
        audit = AuditSpec(request.policy, target, recipe.audit)
        facts = {"recipe": data_digest(recipe.audit), "target": str(target), "policy": policy_digest(request.policy)}
        return self.builder.add(f"{place}/audit", "audit", audit, facts, [fixed])


def _check_path(folder: Path, unusable: str, hint: str) -> None:
    """Refuse a folder in which CMake or a compiler would fail later, for a reason that is hard to find."""
    found = next((character for character in str(folder.absolute()) if character in unusable), None)
    if found is not None:
        problem = f"nothing can be compiled in a folder with {found!r} in its path, which CMake and PATH cannot hold"
        raise UsageError(problem, where=repr(str(folder)), hint=hint)


def _closure(needs: Sequence[ComponentPlan], where: str) -> list[ComponentPlan]:
    found: dict[str, ComponentPlan] = {}
    waiting = list(needs)
    while waiting:
        need = waiting.pop(0)
        same = found.setdefault(need.recipe.name, need)
        if same.version != need.version:
            raise RecipeError(f"{where} is built with {need.recipe.name} {same.version} and {need.version}")
        if same is need:
            waiting += need.needs
    return list(found.values())
