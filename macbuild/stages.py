"""Stages: the steps from sources to the fixed install tree of a component, for a slice of macOS or for this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from macbuild.errors import LockError, PlanError, UnreachableError
from macbuild.graph import Graph, filled
from macbuild.ingredients import data_digest, inputs_digest, policy_digest
from macbuild.options import Choice
from macbuild.origins import Origins
from macbuild.plan import AuditSpec, BuildSpec, FetchSpec, FixSpec, Need, Request, Step
from macbuild.recipe import Build, Recipe, Release, Slice, known_recipe
from macbuild.store import digest
from macbuild.target import Arch, Target, detect_host, parse_version
from macbuild.toolchain.versions import cmake_versions

if TYPE_CHECKING:
    from macbuild.toolchain import Toolchain

__all__ = ["Stages", "Thin"]


@dataclass
class Thin:
    """What one architecture of a component comes to: its fixed stage, and what that was made from.

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
        If nothing but other components uses it: the step that audits a program linked with it.
    """

    recipe: Recipe
    version: str
    part: Slice
    fixed: Step
    sources: tuple[FetchSpec, ...] = ()
    needs: tuple[Thin, ...] = ()
    built: Step | None = None
    inputs: tuple[int, str] | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    checked: Step | None = None

    def closure(self) -> list[Thin]:
        """Return what it is built with, and what that is, each once; a `PlanError` for two versions of one."""
        return _closure(self.needs, f"{self.recipe.name} {self.version}")


@dataclass
class Stages:
    """Adds to a graph what makes stages.

    Parameters
    ----------
    recipes
        What may be built.
    environ
        The environment, in which toolchains are looked for.
    origins
        Where sources come from.
    choice
        What the user said about options.
    graph
        Receives the steps.
    remarks
        Receives what is left out because something cannot be had.
    """

    recipes: Mapping[str, Recipe]
    environ: Mapping[str, str]
    origins: Origins
    choice: Choice
    graph: Graph
    remarks: list[str] = field(default_factory=list)
    _thins: dict[tuple[str, str, str], Thin] = field(default_factory=dict)
    _toolchains: dict[tuple[str | None, Target | None], tuple[Toolchain, str]] = field(default_factory=dict)
    _inputs: dict[tuple[str, tuple[str, ...]], tuple[int, str]] = field(default_factory=dict)

    @contextmanager
    def undone_if_out_of_reach(self) -> Iterator[None]:
        """Take back what the block adds to the graph if it needs something that cannot be had."""
        steps, thins, remarked = dict(self.graph.steps), dict(self._thins), len(self.remarks)
        try:
            yield
        except (LockError, UnreachableError):
            self.graph.steps, self._thins = steps, thins
            del self.remarks[remarked:]
            raise

    def thin(self, recipe: Recipe, release: Release, arch: str, request: Request) -> Thin:
        """Return the stage of a release for one architecture of macOS.

        Raises
        ------
        PlanError, LockError, UnreachableError, RecipeError, ToolError
            It cannot be made.
        """
        key = (recipe.name, release.version, arch)
        if key not in self._thins:
            self._thins[key] = self._thin(recipe, release, arch, request)
        return self._thins[key]

    def _thin(self, recipe: Recipe, release: Release, arch: str, request: Request) -> Thin:
        self.origins.check(recipe, release)
        part = release.slice(arch)
        assert part is not None
        recipe, part = self._chosen(recipe, release, part, lambda name, at: self.other(name, at, arch, request))
        place = f"{recipe.name}-{release.version}-macos-{arch}"
        (repair,) = filled([recipe.repair], {"version": release.version, "arch": arch})
        facts = {"recipe": data_digest(repair), "arch": arch}
        if recipe.build is None:
            source, installed = self.origins.prebuilt(recipe, release, arch, place)
            fixed = self.graph.add(f"{place}/fix", "fix", FixSpec(repair, arch), facts, [installed])
            return Thin(recipe, release.version, part, fixed, (source,))
        needs = tuple(self.other(name, version, arch, request) for name, version in part.needs.items())
        for need in needs:
            if parse_version(need.part.minimum_macos) > parse_version(part.minimum_macos):
                problem = f"needs {need.recipe.name} {need.version}, which needs macOS {need.part.minimum_macos}"
                raise PlanError(problem, where=f"{recipe.name} {release.version} {arch} {part.minimum_macos}")
        deployment = max(request.deployment or "0", part.minimum_macos, key=parse_version)
        target = Target("arm64" if arch == "arm64" else "x86_64", deployment)
        thin = self._built(recipe, release, part, needs, target, request.toolchain)
        if recipe.build.consumer:
            thin.checked = self._checked(thin, place, target, request)
            return thin
        exports = tuple((glob, tuple(rule.allow)) for glob, rule in recipe.audit.exports.items() if rule.allow)
        facts["recipe"] = digest([facts["recipe"], exports])
        fix = FixSpec(repair, arch, exports)
        thin.fixed = self.graph.add(f"{place}/fix", "fix", fix, facts, [thin.fixed])
        return thin

    def other(self, name: str, version: str, arch: str, request: Request) -> Thin:
        """Return the stage of a component that another one names."""
        recipe = known_recipe(self.recipes, name)
        release = recipe.release(version, "arm64" if arch == "arm64" else "x86_64")
        return self.thin(recipe, release, arch, request)

    def host(self, name: str, version: str | None = None) -> Thin:
        """Return the stage of a component that is built for the machine that macbuild runs on.

        Raises
        ------
        PlanError
            If it is repackaged, or has no release for such a machine.
        """
        recipe = known_recipe(self.recipes, name)
        if recipe.build is None:
            raise PlanError("is repackaged, so it cannot be built for this machine", where=name)
        arch: Arch = "arm64" if detect_host().arch == "arm64" else "x86_64"
        release = recipe.release(version, arch)
        key = (name, release.version, "host")
        if key not in self._thins:
            self._thins[key] = self._host(recipe, release, arch)
        return self._thins[key]

    def _host(self, recipe: Recipe, release: Release, arch: Arch) -> Thin:
        self.origins.check(recipe, release)
        part = release.slice(arch)
        assert part is not None
        recipe, part = self._chosen(recipe, release, part, self.host, self._for_host)
        needs = tuple(self.host(need, wanted) for need, wanted in part.needs.items())
        return self._built(recipe, release, part, needs, None, "host")

    def linux(self, recipe: Recipe, release: Release) -> Step:
        """Return the step that arranges the Linux release of a component, which serves tests on this machine."""
        place = f"{recipe.name}-{release.version}-linux-x86_64"
        return self.origins.prebuilt(recipe, release, "linux_x86_64", place)[1]

    def optional(self, name: str) -> set[str]:
        """Return the components that a component is made with or without, as its options say."""
        build = self.recipes[name].build
        return {component for option in (build.options.values() if build else ()) for component in option.components}

    def _for_host(self, name: str) -> bool:
        """Whether a component is one that others lie beside on this machine; our backends are tested by themselves."""
        build = known_recipe(self.recipes, name).build
        return build is not None and bool(build.project or build.consumer)

    def _chosen(
        self,
        recipe: Recipe,
        release: Release,
        part: Slice,
        make: Callable[[str, str], Thin],
        suits: Callable[[str], bool] = lambda _: True,
    ) -> tuple[Recipe, Slice]:
        """Return a recipe and its slice as the options make them.

        `make` tells whether a component can be had, `suits` whether what an option carries is for this target.
        """
        if recipe.build is None or not recipe.build.options:
            return recipe, part
        names = {"version": release.version, "arch": "{arch}"}
        table = {name: filled([option], names)[0] for name, option in recipe.build.options.items()}
        options = {name: option for name, option in table.items() if all(map(suits, option.carries))}
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
                self.remarks.append(f"{recipe.name} is made without {name}: {error}")
        definitions = dict(recipe.build.definitions)
        needs, carries = dict(part.needs), dict(part.carries)
        for name, on in self.choice.of(recipe.name, options, missing).items():
            definitions |= options[name].on if on else options[name].off
            needs |= options[name].needs if on else {}
            carries |= options[name].carries if on else {}
        build = msgspec.structs.replace(recipe.build, definitions=definitions, options={})
        recipe = msgspec.structs.replace(recipe, build=build)
        return recipe, msgspec.structs.replace(part, needs=needs, carries=carries)

    def _built(
        self,
        recipe: Recipe,
        release: Release,
        part: Slice,
        needs: tuple[Thin, ...],
        target: Target | None,
        toolchain: str | None,
    ) -> Thin:
        """Return what the build step makes, from the sources of the release if it has any."""
        assert recipe.build is not None
        roles: list[tuple[Need, Step]] = []
        sources: tuple[FetchSpec, ...] = ()
        port = bool(recipe.build.project)
        trees = [(known_recipe(self.recipes, name), version) for name, version in part.trees.items()]
        for other, version in [(recipe, release.version)] * bool(release.source) + trees:
            source, tree = self.origins.tree(other, other.exact(version), target, port=port)
            sources, roles = (*sources, source), [*roles, (Need(other.name, "source"), tree)]
        closure = _closure(needs, f"{recipe.name} {release.version}")
        roles += [(Need(need.recipe.name, "library"), need.fixed) for need in closure]
        roles += self._tools(part, without=recipe.name)
        arch = detect_host().arch if target is None else target.arch
        (build,) = filled([recipe.build], {"version": release.version, "arch": arch})
        place = f"{recipe.name}-{release.version}-{'host' if target is None else f'macos-{target.arch}'}"
        built, inputs, tools = self._build(recipe, build, "", place, roles, target, toolchain)
        sources = (*sources, *(source for need in closure for source in need.sources))
        return Thin(recipe, release.version, part, built, sources, needs, built, inputs, tools)

    def _tools(self, part: Slice, without: str = "") -> list[tuple[Need, Step]]:
        wanted = {name: version for name, version in part.tools.items() if name != without}
        return [(Need(name, "tool"), self.host(name, version).fixed) for name, version in wanted.items()]

    def _build(
        self,
        recipe: Recipe,
        build: Build,
        project: str,
        place: str,
        roles: Sequence[tuple[Need, Step]],
        target: Target | None,
        toolchain_name: str | None,
    ) -> tuple[Step, tuple[int, str] | None, Mapping[str, str]]:
        toolchain, description = self._toolchain(toolchain_name, target)
        inputs = self._input_files(recipe.name, build.inputs) if build.inputs else None
        tools = {toolchain.name: description, **cmake_versions()}
        setting = {
            "recipe": data_digest(build),
            "toolchain": digest([toolchain.identity, tools]),
            "target": str(target or "host"),
        }
        # Everything but the component's own files, so that these compile in the same folder when they change. A project
        # in a source has its files there.
        settled = [pair for pair in roles if pair[0].role != "source" or not build.project]
        keys = [[need.component, need.role, step.key] for need, step in settled]
        mark = digest([setting, keys, str(self.origins.recipes.absolute())])[:12]
        step = f"{place}/{'consumer' if project else 'build'}"
        folder = f"{step.replace('/build', '').replace('/', '-')}-{toolchain.name}-{mark}"
        needed = tuple(need for need, _ in roles)
        spec = BuildSpec(recipe.name, project, folder, build, target, needed, toolchain_name)
        facts = {**setting, "source": inputs[1]} if inputs else setting
        return self.graph.add(step, "build", spec, facts, [made for _, made in roles]), inputs, tools

    def _toolchain(self, name: str | None, target: Target | None) -> tuple[Toolchain, str]:
        """Return a toolchain and its versions, which are asked for once."""
        from macbuild.toolchain import find_toolchain  # noqa: PLC0415 - what is only repackaged needs no compiler

        key = (name, target)
        if key not in self._toolchains:
            found = find_toolchain(name, target, self.environ)
            self._toolchains[key] = (found, found.describe())
        return self._toolchains[key]

    def _input_files(self, component: str, globs: Sequence[str]) -> tuple[int, str]:
        key = (component, tuple(globs))
        if key not in self._inputs:
            self._inputs[key] = inputs_digest(self.origins.recipes / component, globs)
        return self._inputs[key]

    def _checked(self, thin: Thin, place: str, target: Target, request: Request) -> Step:
        """Return the step that audits the program that is linked with a library, as its users link it."""
        recipe = thin.recipe
        assert recipe.build is not None
        consumer = Build(inputs=[f"{recipe.build.consumer}/**/*"])
        roles = [(Need(other.recipe.name, "library"), other.fixed) for other in (thin, *thin.closure())]
        roles += self._tools(thin.part)
        project = recipe.build.consumer
        built, _, _ = self._build(recipe, consumer, project, place, roles, target, request.toolchain)
        facts = {"recipe": data_digest(recipe.repair), "arch": target.arch}
        fixed = self.graph.add(f"{place}/fix", "fix", FixSpec(recipe.repair, target.arch), facts, [built])
        audit = AuditSpec(request.policy, target, recipe.audit)
        facts = {"recipe": data_digest(recipe.audit), "target": str(target), "policy": policy_digest(request.policy)}
        return self.graph.add(f"{place}/audit", "audit", audit, facts, [fixed])


def _closure(needs: Sequence[Thin], where: str) -> list[Thin]:
    found: dict[str, Thin] = {}
    waiting = list(needs)
    while waiting:
        need = waiting.pop(0)
        same = found.setdefault(need.recipe.name, need)
        if same.version != need.version:
            raise PlanError(f"is built with {need.recipe.name} {same.version} and {need.version}", where=where)
        if same is need:
            waiting += need.needs
    return list(found.values())
