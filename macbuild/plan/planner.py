"""Make the plan: which steps lead to what was asked for, their keys, and why each would run. It reads, never writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.errors import LockError, MacbuildError, PlanError, UnreachableError
from macbuild.plan.artifacts import ArtifactPlanner
from macbuild.plan.builder import PlanBuilder
from macbuild.plan.components import ComponentPlanner
from macbuild.plan.keys import data_digest
from macbuild.plan.model import ArtifactPlan, AssembleSpec, BuildRequest, Plan, Refusal
from macbuild.plan.sources import SourcePlanner
from macbuild.recipe.load import Recipes
from macbuild.recipe.lock import Lock, lock_command
from macbuild.recipe.model import Package, Recipe
from macbuild.recipe.options import Choice
from macbuild.recipe.release import Release
from macbuild.store import Store
from macbuild.target import Target, parse_version

__all__ = ["Planner"]


@dataclass
class Planner:
    """Turns a request into a plan.

    Parameters
    ----------
    recipes, lock, store
        What the plan is made from.
    environ
        The environment, in which toolchains are looked for.
    unavailable
        Sources that failed in this run, by their id, with the error.
    refuse
        True to list a component without any source left as refused, False to raise.
    folders
        Folders of the user that are used as sources, by component.
    choice
        The options that the user chose.
    lock_command
        Returns the command that pins the sources of components, for hints.
    """

    recipes: Recipes
    lock: Lock
    store: Store
    environ: Mapping[str, str] = field(default_factory=dict)
    unavailable: Mapping[str, MacbuildError] = field(default_factory=dict)
    refuse: bool = False
    folders: Mapping[str, Path] = field(default_factory=dict)
    choice: Choice = field(default_factory=Choice)
    lock_command: Callable[..., str] = lock_command

    def plan(self, request: BuildRequest) -> Plan:
        """Return the plan of a request.

        Raises
        ------
        PlanError
            For an unknown component, or a target that the inputs cannot serve.
        LockError
            If no source of a component is pinned.
        UnreachableError
            If no pinned source of a component is available.
        RecipeError, ToolError
            If the inputs of a component that is built are missing, or its toolchain is.
        """
        builder = PlanBuilder(self.store)
        components = self._components(builder)
        artifacts: list[ArtifactPlan] = []
        stages: list[str] = []
        checks: list[str] = []
        refused = []
        for name, version in request.components:
            try:
                with components.undone_if_out_of_reach():
                    recipe = self.recipes.known(name)
                    release = recipe.release(version, request.arch)
                    target = _target(recipe, release, request)
                    plans = [components.for_macos(recipe, release, arch, request) for arch in target.slices]
                    if request.pack and recipe.artifacts:
                        artifacts += ArtifactPlanner(components, request).of(plans, target, release)
                    else:
                        stages += [plan.fixed.id for plan in plans]
                    checks += [plan.checked.id for plan in plans if plan.checked]
            except (UnreachableError, LockError) as error:
                refused.append(Refusal(name, error))
        if refused and not self.refuse:
            raise self._refusal(refused)
        return Plan(
            builder.steps,
            tuple(dict.fromkeys(artifacts)),
            tuple(refused),
            tuple(dict.fromkeys(stages)),
            tuple(dict.fromkeys(checks)),
            tuple(dict.fromkeys(builder.remarks)),
        )

    def _refusal(self, refused: Sequence[Refusal]) -> MacbuildError:
        """Return the error that names every component without a source; of a single one, its own."""
        error = refused[0].error
        if len(refused) == 1:
            return error
        names = [refusal.component for refusal in refused]
        return type(error)(
            f"no source is available for {len(names)} components: {', '.join(names)}",
            hint=f"build the others with --skip-unreachable; to pin sources, run: {self.lock_command(*names)}",
        )

    def host_stages(self, name: str) -> Plan:
        """Return the plan for a component, what it is built with and its tools, on this machine."""
        builder = PlanBuilder(self.store)
        components = self._components(builder)
        plan = components.host(name)
        tools = [components.host(tool, version) for tool, version in plan.part.tools.items()]
        return Plan(
            builder.steps, (), (), tuple(dict.fromkeys(each.fixed.id for each in (plan, *plan.closure(), *tools)))
        )

    def host_tree(self, name: str) -> Plan:
        """Return the plan for a component and what its tarball carries of others, as one tree for this machine."""
        builder = PlanBuilder(self.store)
        components = self._components(builder)
        plan = components.host(name)
        carried = {other: components.host(other, version) for other, version in plan.part.carries.items()}
        (tarball,) = (package for package in plan.recipe.artifacts if package.kind == "tarball")
        rules = [tuple(rule for rule in tarball.include if rule.component == other) for other in carried]
        spec = AssembleSpec(name, Package(kind="tarball", name=name), tuple(rules))
        needs = [plan.fixed, *(other.fixed for other in carried.values())]
        tree = builder.add(
            f"{name}-{plan.version}-host/assemble", "assemble", spec, {"recipe": data_digest(rules)}, needs
        )
        return Plan(builder.steps, (), (), (tree.id,), remarks=tuple(dict.fromkeys(builder.remarks)))

    def linux_stage(self, name: str) -> Plan:
        """Return the plan for the newest Linux release of a component, which serves tests on this machine."""
        recipe = self.recipes.known(name)
        releases = [release for release in recipe.releases if release.linux_x86_64]
        if not releases:
            raise PlanError("there is no release for Linux", where=name)
        builder = PlanBuilder(self.store)
        release = max(releases, key=lambda release: parse_version(release.version))
        installed = self._components(builder).linux(recipe, release)
        return Plan(builder.steps, (), (), (installed.id,))

    def _components(self, builder: PlanBuilder) -> ComponentPlanner:
        given = (self.lock, self.recipes, self.unavailable, self.folders, builder)
        sources = SourcePlanner(*given, lock_command=self.lock_command)
        return ComponentPlanner(self.recipes, self.environ, sources, self.choice, builder)


def _target(recipe: Recipe, release: Release, request: BuildRequest) -> Target:
    slices = Target(request.arch, "0").slices
    minimums = [part.minimum_macos for arch in slices if (part := release.slice(arch)) is not None]
    minimum = max(minimums, key=parse_version)
    if request.deployment is None:
        return Target(request.arch, minimum)
    if parse_version(request.deployment) < parse_version(minimum):
        raise PlanError(
            f"{recipe.name} {release.version} for {request.arch} needs macOS {minimum}, asked for {request.deployment}",
            where="deployment target",
            hint=f"raise the deployment target to {minimum}, or choose another release: {recipe.choices()}",
        )
    return Target(request.arch, minimum if recipe.build is None else request.deployment)
