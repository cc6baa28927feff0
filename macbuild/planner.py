"""Make the plan: which steps lead to what was asked for, their keys, and why each would run. It reads, never writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import msgspec

from macbuild.data import nearest
from macbuild.errors import LockError, MacbuildError, PlanError, UnreachableError
from macbuild.graph import Graph, filled
from macbuild.ingredients import data_digest, inputs_digest, policy_digest
from macbuild.lock import Lock
from macbuild.options import Choice
from macbuild.origins import Origins
from macbuild.plan import (
    ArtifactPlan,
    AssembleSpec,
    AuditSpec,
    FetchSpec,
    MergeSpec,
    PackSpec,
    Plan,
    Refusal,
    Request,
    Step,
)
from macbuild.recipe import Audit, Include, Package, Recipe, Release, known_recipe
from macbuild.stages import Stages, Thin
from macbuild.store import Store, digest
from macbuild.target import Target, parse_version
from macbuild.toolchain.versions import package_version

__all__ = ["Planner"]


@dataclass
class Planner:
    """Turns a request into a plan.

    Parameters
    ----------
    recipes, lock, store
        What the plan is made from.
    folder
        Where the recipes are.
    environ
        The environment, in which toolchains are looked for.
    unavailable
        Sources that failed in this run, by their id, with the error.
    refuse
        Whether a component without any source left is listed as refused, not raised.
    folders
        Folders of the user's own that serve as sources, by component.
    choice
        What the user said about options.
    """

    recipes: Mapping[str, Recipe]
    lock: Lock
    store: Store
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    unavailable: Mapping[str, MacbuildError] = field(default_factory=dict)
    refuse: bool = False
    folders: Mapping[str, Path] = field(default_factory=dict)
    choice: Choice = field(default_factory=Choice)

    def plan(self, request: Request) -> Plan:
        """Return the plan of a request.

        Raises
        ------
        PlanError
            For an unknown component, or a target that the inputs cannot serve.
        LockError
            If no source of a component is pinned.
        UnreachableError
            If no pinned source of a component can be had.
        RecipeError, ToolError
            If the inputs of a component that is built are not there, or its toolchain is not.
        """
        graph = Graph(self.store)
        makers = self._stages(graph)
        artifacts: list[ArtifactPlan] = []
        stages: list[str] = []
        checks: list[str] = []
        refused = []
        for name, version in request.components:
            try:
                with makers.undone_if_out_of_reach():
                    recipe = known_recipe(self.recipes, name)
                    release = recipe.release(version, request.arch)
                    target = _target(recipe, release, request)
                    thins = [makers.thin(recipe, release, arch, request) for arch in target.slices]
                    if request.pack and recipe.artifacts:
                        artifacts += _Artifacts(makers, request).of(thins, target, release)
                    else:
                        stages += [thin.fixed.id for thin in thins]
                    checks += [thin.checked.id for thin in thins if thin.checked]
            except (UnreachableError, LockError) as error:
                if not self.refuse:
                    raise
                refused.append(Refusal(name, error))
        return Plan(
            graph.steps,
            tuple(dict.fromkeys(artifacts)),
            tuple(refused),
            tuple(dict.fromkeys(stages)),
            tuple(dict.fromkeys(checks)),
            tuple(dict.fromkeys(makers.remarks)),
        )

    def host_stages(self, name: str) -> Plan:
        """Return the plan for a component, what it is built with and its tools, on the machine at hand."""
        graph = Graph(self.store)
        stages = self._stages(graph)
        thin = stages.host(name)
        tools = [stages.host(tool, version) for tool, version in thin.part.tools.items()]
        return Plan(
            graph.steps, (), (), tuple(dict.fromkeys(each.fixed.id for each in (thin, *thin.closure(), *tools)))
        )

    def host_tree(self, name: str) -> Plan:
        """Return the plan for a component and what its tarball carries of others, as one tree for this machine."""
        graph = Graph(self.store)
        stages = self._stages(graph)
        thin = stages.host(name)
        carried = {other: stages.host(other, version) for other, version in thin.part.carries.items()}
        (tarball,) = (package for package in thin.recipe.artifacts if package.kind == "tarball")
        rules = [tuple(rule for rule in tarball.include if rule.component == other) for other in carried]
        spec = AssembleSpec(name, Package(kind="tarball", name=name), tuple(rules))
        needs = [thin.fixed, *(other.fixed for other in carried.values())]
        tree = graph.add(
            f"{name}-{thin.version}-host/assemble", "assemble", spec, {"recipe": data_digest(rules)}, needs
        )
        return Plan(graph.steps, (), (), (tree.id,), remarks=tuple(dict.fromkeys(stages.remarks)))

    def linux_stage(self, name: str) -> Plan:
        """Return the plan for the newest Linux release of a component, which serves tests on the machine at hand."""
        recipe = known_recipe(self.recipes, name)
        releases = [release for release in recipe.releases if release.linux_x86_64]
        if not releases:
            raise PlanError("there is no release for Linux", where=name)
        graph = Graph(self.store)
        release = max(releases, key=lambda release: parse_version(release.version))
        installed = self._stages(graph).linux(recipe, release)
        return Plan(graph.steps, (), (), (installed.id,))

    def _stages(self, graph: Graph) -> Stages:
        origins = Origins(self.lock, self.folder, self.unavailable, self.folders, graph)
        return Stages(self.recipes, self.environ, origins, self.choice, graph)


@dataclass
class _Artifacts:
    """Adds what makes artifacts of stages."""

    stages: Stages
    request: Request

    def of(self, thins: list[Thin], target: Target, release: Release) -> list[ArtifactPlan]:
        """Return the artifacts of a component."""
        graph, request, recipe = self.stages.graph, self.request, thins[0].recipe
        artifacts = []
        for package in recipe.artifacts:
            suffix = _suffix(recipe, package)
            held = [self._held(thin, package, arch) for thin, arch in _slices(thins, target)]
            own = _raised(target, package, held, request)
            stages = [self._assembled(thin, package, arch) for thin, arch in _slices(thins, target)]
            place = f"{recipe.name}-{release.version}-macos-{target.arch}"
            stage = stages[0]
            if target.arch == "universal2":
                prefer = tuple(rule for part in _packed(recipe, package, held[0]) for rule in part.merge.prefer)
                merge = MergeSpec(target.slices, prefer)
                stage = graph.add(f"{place}/merge{suffix}", "merge", merge, {"recipe": data_digest(prefer)}, stages)
            providers = [step for thin in thins for step in _providers(thin)]
            requirements = tuple(recipe.build.python_packages.values()) if recipe.build else ()
            rules = _rules(recipe, package, held[0])
            audit = AuditSpec(request.policy, own, rules, requirements if package.kind == "wheel" else ())
            facts = {"recipe": data_digest(rules), "target": str(own), "policy": policy_digest(request.policy)}
            audited = graph.add(f"{place}/audit{suffix}", "audit", audit, facts, [stage, *providers])
            sources = [source for thin in (*thins, *chain(*held)) for source in thin.sources]
            packed = self._pack(thins, package, own, sources, [stage, audited], suffix)
            artifacts.append(ArtifactPlan(f"{place}{suffix}", recipe.name, release.version, own, packed.id))
        return artifacts

    def _carried(self, thin: Thin, package: Package, arch: str) -> dict[str, Thin]:
        """Return what a package holds of components that its own is not linked with."""
        names = dict.fromkeys(include.component for include in package.include)
        carries = thin.part.carries
        return {name: self.stages.other(name, carries[name], arch, self.request) for name in names if name in carries}

    def _held(self, thin: Thin, package: Package, arch: str) -> list[Thin]:
        """Return what a package carries, and what the tarballs hold that it takes of that."""
        found = []
        packed = {include.component for include in package.include if include.packed}
        for name, other in self._carried(thin, package, arch).items():
            tarball = other.recipe.tarball
            found += [other, *(self._held(other, tarball, arch) if name in packed and tarball else ())]
        return found

    def _assembled(self, thin: Thin, package: Package, arch: str) -> Step:
        """Return the step that arranges a package."""
        if thin.built is None:
            return thin.fixed
        optional = self.stages.optional(thin.recipe.name) - thin.part.needs.keys() - thin.part.carries.keys()
        suffix = _suffix(thin.recipe, package)
        (package,) = filled([_without(package, optional)], {"version": thin.version, "arch": arch})
        others = {need.recipe.name: need for need in thin.needs} | self._carried(thin, package, arch)
        names = list(dict.fromkeys(include.component for include in package.include))
        includes = tuple(tuple(rule for rule in package.include if rule.component == name) for name in names)
        steps = [self._taken(others, rules, arch) for rules in includes]
        spec = AssembleSpec(thin.recipe.name, package, includes)
        facts = {"recipe": data_digest(package)}
        if package.files:
            globs = [rule.source for rule in package.files]
            facts["source"] = inputs_digest(self.stages.origins.recipes / thin.recipe.name, globs)[1]
        place = f"{thin.recipe.name}-{thin.version}-macos-{arch}"
        return self.stages.graph.add(f"{place}/assemble{suffix}", "assemble", spec, facts, [thin.fixed, *steps])

    def _taken(self, others: Mapping[str, Thin], rules: Sequence[Include], arch: str) -> Step:
        """Return the step that makes what a package takes of another component."""
        name = rules[0].component
        if name not in others:
            hint = nearest(name, list(others))
            raise PlanError(f"the package includes {name}, which it neither needs nor carries", hint=hint)
        other = others[name]
        if not any(rule.packed for rule in rules):
            return other.fixed
        tarball = other.recipe.tarball
        if tarball is None or not all(rule.packed for rule in rules):
            problem = "has no tarball" if tarball is None else "cannot be included packed and not"
            raise PlanError(f"{name} {problem}, and the package includes it packed")
        return self._assembled(other, tarball, arch)

    def _pack(
        self,
        thins: Sequence[Thin],
        package: Package,
        target: Target,
        sources: Sequence[FetchSpec],
        needs: list[Step],
        suffix: str,
    ) -> Step:
        recipe, version = thins[0].recipe, thins[0].version
        sources = tuple({source.ref.id: source for source in sources}.values())
        name = f"{package.name}-{version}-macos-{target.arch}"
        inputs, tools = thins[0].inputs, dict(thins[0].tools)
        if package.kind == "wheel":
            tools["scikit-build-core"] = package_version("scikit_build_core") or ""
        carried = {include.component for include in package.include}
        needs_of = [
            need for thin in thins for need in thin.needs if need.recipe.artifacts
        ]  # others are linked statically
        leans_on = dict.fromkeys((need.recipe.name, need.version) for need in needs_of)
        spec = PackSpec(
            name,
            package.kind,
            package.name,
            recipe,
            version,
            target,
            self.request.epoch,
            sources,
            inputs,
            tools,
            tuple(pair for pair in leans_on if pair[0] not in carried),
        )
        facts = {
            "recipe": digest([recipe.name, recipe.summary, recipe.homepage, recipe.license, package.name]),
            "source": digest([*(data_digest(source.pin) for source in sources), inputs, tools]),
            "target": str(target),
            "epoch": str(self.request.epoch),
        }
        place = f"{recipe.name}-{version}-macos-{target.arch}"
        return self.stages.graph.add(f"{place}/pack{suffix}", "pack", spec, facts, needs)


def _without(package: Package, components: Collection[str]) -> Package:
    """Return a package that holds nothing of some components."""
    kept = [include for include in package.include if include.component not in components]
    return msgspec.structs.replace(package, include=kept)


def _suffix(recipe: Recipe, package: Package) -> str:
    return "" if len(recipe.artifacts) == 1 else f" {package.kind}"


def _packed(recipe: Recipe, package: Package, held: Sequence[Thin]) -> list[Recipe]:
    """Return the recipe of a package, and those of the components whose tarballs it takes."""
    names = {include.component for include in package.include if include.packed}
    return [recipe, *(other.recipe for other in held if other.recipe.name in names)]


def _rules(recipe: Recipe, package: Package, held: Sequence[Thin]) -> Audit:
    """Return what the audit must know of a package."""
    audits = [part.audit for part in _packed(recipe, package, held)]
    exports = {glob: rule for audit in reversed(audits) for glob, rule in audit.exports.items()}
    return Audit(exempt=[exemption for audit in audits for exemption in audit.exempt], exports=exports)


def _providers(thin: Thin) -> list[Step]:
    """Return the steps whose results hold what a built stage leans on: the stubs it was linked with, its needs."""
    return [] if thin.built is None else [thin.built, *(need.fixed for need in thin.needs)]


def _slices(thins: Sequence[Thin], target: Target) -> list[tuple[Thin, str]]:
    return list(zip(thins, target.slices, strict=True))


def _raised(target: Target, package: Package, carried: Sequence[Sequence[Thin]], request: Request) -> Target:
    """Return the target of a package, which runs only where all that it carries runs."""
    minimums = [(other.part.minimum_macos, other) for others in carried for other in others]
    for minimum, other in minimums:
        if request.deployment is not None and parse_version(request.deployment) < parse_version(minimum):
            raise PlanError(
                f"the {package.kind} holds {other.recipe.name} {other.version}, which needs macOS {minimum}, asked for "
                f"{request.deployment}",
                where="deployment target",
                hint=f"raise the deployment target to {minimum}",
            )
    return Target(target.arch, max([target.deployment, *(text for text, _ in minimums)], key=parse_version))


def _target(recipe: Recipe, release: Release, request: Request) -> Target:
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
