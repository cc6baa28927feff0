"""Make the plan: which steps lead to what was asked for, their keys, and why each would run. It reads, never writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from macbuild.data import Data, from_plain, nearest
from macbuild.errors import LockError, MacbuildError, PlanError, UnreachableError
from macbuild.ingredients import data_digest, inputs_digest, policy_digest, tool_digest
from macbuild.lock import Lock, source_refs
from macbuild.plan import (
    ArtifactPlan,
    AssembleSpec,
    AuditSpec,
    BuildSpec,
    FetchSpec,
    FixSpec,
    InstallSpec,
    Kind,
    MergeSpec,
    PackSpec,
    Plan,
    Refusal,
    Request,
    Spec,
    Step,
    UnpackSpec,
)
from macbuild.recipe import Package, Recipe, Release, Slice
from macbuild.store import Store, digest
from macbuild.target import Target, parse_version
from macbuild.toolchain.versions import cmake_versions, package_version

__all__ = ["Planner"]

T = TypeVar("T", bound=Data)


@dataclass
class _Thin:
    """What one architecture of a component comes to: its fixed stage, and what that was made from."""

    recipe: Recipe
    version: str
    part: Slice
    fixed: Step
    sources: tuple[FetchSpec, ...] = ()
    needs: tuple[_Thin, ...] = ()
    built: Step | None = None
    inputs: tuple[int, str] | None = None
    tools: Mapping[str, str] = field(default_factory=dict)


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
    """

    recipes: Mapping[str, Recipe]
    lock: Lock
    store: Store
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    unavailable: Mapping[str, MacbuildError] = field(default_factory=dict)
    refuse: bool = False

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
        graph = _Graph(self.store)
        artifacts: list[ArtifactPlan] = []
        stages: list[str] = []
        refused = []
        for name, version in request.components:
            before = dict(graph.steps)
            try:
                thins, target, release = self._component(name, version, request, graph)
                if request.pack:
                    artifacts += self._artifacts(graph, thins, target, release, request)
                else:
                    stages += [thin.fixed.id for thin in thins]
            except (UnreachableError, LockError) as error:
                graph.steps = before
                if not self.refuse:
                    raise
                refused.append(Refusal(name, error))
        return Plan(graph.steps, tuple(dict.fromkeys(artifacts)), tuple(refused), tuple(dict.fromkeys(stages)))

    def linux_stage(self, name: str) -> Plan:
        """Return the plan for the newest Linux release of a component, which serves tests on the machine at hand."""
        recipe = self._recipe(name)
        releases = [release for release in recipe.releases if release.linux_x86_64]
        if not releases:
            raise PlanError("there is no release for Linux", where=name)
        release = max(releases, key=lambda release: parse_version(release.version))
        graph = _Graph(self.store)
        source = self.choose(recipe, release, "linux_x86_64")
        installed = self._repackaged(graph, recipe, source, f"{name}-{release.version}-linux-x86_64")
        return Plan(graph.steps, (), (), (installed.id,))

    def _recipe(self, name: str) -> Recipe:
        recipe = self.recipes.get(name)
        if recipe is None:
            raise PlanError(f"there is no recipe {name!r}", hint=nearest(name, list(self.recipes)))
        return recipe

    def _component(
        self, name: str, version: str | None, request: Request, graph: _Graph
    ) -> tuple[list[_Thin], Target, Release]:
        recipe = self._recipe(name)
        release = recipe.release(version, request.arch)
        target = _target(recipe, release, request)
        return [self._thin(graph, recipe, release, arch, request) for arch in target.slices], target, release

    def _thin(self, graph: _Graph, recipe: Recipe, release: Release, arch: str, request: Request) -> _Thin:
        place = f"{recipe.name}-{release.version}-macos-{arch}"
        (repair,) = _filled([recipe.repair], {"version": release.version, "arch": arch})
        facts = {"recipe": data_digest(repair), "arch": arch}
        part = release.slice(arch)
        assert part is not None
        if recipe.build is None:
            source = self.choose(recipe, release, arch)
            installed = self._repackaged(graph, recipe, source, place)
            fixed = graph.add(f"{place}/fix", "fix", FixSpec(repair, arch), facts, [installed])
            return _Thin(recipe, release.version, part, fixed, (source,))
        needs = [self._other(graph, name, version, arch, request) for name, version in part.needs.items()]
        for need in needs:
            if parse_version(need.part.minimum_macos) > parse_version(part.minimum_macos):
                problem = f"needs {need.recipe.name} {need.version}, which needs macOS {need.part.minimum_macos}"
                raise PlanError(problem, where=f"{recipe.name} {release.version} {arch} {part.minimum_macos}")
        built, inputs, tools = self._build(graph, recipe, release, arch, request, needs)
        exports = tuple((glob, tuple(rule.allow)) for glob, rule in recipe.audit.exports.items() if rule.allow)
        facts["recipe"] = digest([facts["recipe"], exports])
        fixed = graph.add(f"{place}/fix", "fix", FixSpec(repair, arch, exports), facts, [built])
        sources = tuple(source for need in needs for source in need.sources)
        return _Thin(recipe, release.version, part, fixed, sources, tuple(needs), built, inputs, tools)

    def _repackaged(self, graph: _Graph, recipe: Recipe, source: FetchSpec, place: str) -> Step:
        names = {"version": source.ref.version, "arch": source.ref.arch}
        rules = tuple(_filled(recipe.layouts[source.candidate.layout], names))
        links = tuple(_filled(recipe.links, names))
        fetched = graph.add(f"{place}/fetch", "fetch", source, {"lock": _pin_digest(source)}, [])
        unpacked = graph.add(f"{place}/unpack", "unpack", UnpackSpec(), {}, [fetched])
        layout = {"recipe": digest([data_digest(rules), data_digest(links)])}
        return graph.add(f"{place}/install", "install", InstallSpec(rules, links), layout, [unpacked])

    def _other(self, graph: _Graph, name: str, version: str, arch: str, request: Request) -> _Thin:
        recipe = self._recipe(name)
        release = recipe.release(version, "arm64" if arch == "arm64" else "x86_64")
        return self._thin(graph, recipe, release, arch, request)

    def _build(
        self, graph: _Graph, recipe: Recipe, release: Release, arch: str, request: Request, needs: Sequence[_Thin]
    ) -> tuple[Step, tuple[int, str], Mapping[str, str]]:
        from macbuild.toolchain import find_toolchain  # noqa: PLC0415 - what is only repackaged needs no compiler

        assert recipe.build is not None
        part = release.slice(arch)
        assert part is not None
        deployment = max(request.deployment or "0", part.minimum_macos, key=parse_version)
        target = Target("arm64" if arch == "arm64" else "x86_64", deployment)
        toolchain = find_toolchain(request.toolchain, target, self.environ)
        inputs = inputs_digest(self.folder / recipe.name, recipe.build.inputs)
        tools = {toolchain.name: toolchain.describe(), **cmake_versions()}
        setting = {
            "recipe": data_digest(recipe.build),
            "toolchain": digest([toolchain.identity, tools]),
            "target": str(target),
        }
        place = f"{recipe.name}-{release.version}-macos-{arch}"
        keys = [need.fixed.key for need in needs]
        # Everything but the component's own files, so that these compile in the same folder when they change.
        folder = f"{place}-{toolchain.name}-{digest([setting, keys, str(self.folder.absolute())])[:12]}"
        names = tuple(need.recipe.name for need in needs)
        spec = BuildSpec(recipe.name, folder, recipe.build, target, names, request.toolchain)
        facts = {**setting, "source": inputs[1]}
        return graph.add(f"{place}/build", "build", spec, facts, [need.fixed for need in needs]), inputs, tools

    def _artifacts(
        self, graph: _Graph, thins: list[_Thin], target: Target, release: Release, request: Request
    ) -> list[ArtifactPlan]:
        recipe = thins[0].recipe
        if not recipe.artifacts:
            raise PlanError("makes no artifact", where=recipe.name, hint=f"run: macbuild build {recipe.name} --no-pack")
        artifacts = []
        for package in recipe.artifacts:
            only = len(recipe.artifacts) == 1
            suffix = "" if only else f" {package.kind}"
            carried = [self._carried(graph, thin, package, arch, request) for thin, arch in _slices(thins, target)]
            own = _raised(target, package, carried, request)
            stages = [
                self._assembled(graph, thin, package, arch, others, suffix)
                for (thin, arch), others in zip(_slices(thins, target), carried, strict=True)
            ]
            place = f"{recipe.name}-{release.version}-macos-{target.arch}"
            stage = stages[0]
            if target.arch == "universal2":
                prefer = tuple(recipe.merge.prefer)
                merge = MergeSpec(target.slices, prefer)
                stage = graph.add(f"{place}/merge{suffix}", "merge", merge, {"recipe": data_digest(prefer)}, stages)
            providers = [step for thin in thins for step in _providers(thin)]
            requirements = tuple(recipe.build.python_packages.values()) if recipe.build else ()
            audit = AuditSpec(request.policy, own, recipe.audit, requirements if package.kind == "wheel" else ())
            facts = {
                "recipe": data_digest(recipe.audit),
                "target": str(own),
                "policy": policy_digest(request.policy),
            }
            audited = graph.add(f"{place}/audit{suffix}", "audit", audit, facts, [stage, *providers])
            sources = [source for thin in (*thins, *chain(*carried)) for source in thin.sources]
            packed = self._pack(graph, thins, package, own, sources, request, [stage, audited], suffix)
            artifacts.append(ArtifactPlan(f"{place}{suffix}", recipe.name, release.version, own, packed.id))
        return artifacts

    def _carried(self, graph: _Graph, thin: _Thin, package: Package, arch: str, request: Request) -> list[_Thin]:
        """Return what a package holds of components that its own is not linked with."""
        names = dict.fromkeys(include.component for include in package.include)
        carries = thin.part.carries
        return [self._other(graph, name, carries[name], arch, request) for name in names if name in carries]

    def _assembled(
        self, graph: _Graph, thin: _Thin, package: Package, arch: str, carried: Sequence[_Thin], suffix: str
    ) -> Step:
        if thin.built is None:
            return thin.fixed
        (package,) = _filled([package], {"version": thin.version, "arch": arch})
        by_name = {other.recipe.name: other for other in (*thin.needs, *carried)}
        for include in package.include:
            if include.component not in by_name:
                hint = nearest(include.component, list(by_name))
                problem = f"the package includes {include.component}, which it neither needs nor carries"
                raise PlanError(problem, hint=hint)
        names = list(dict.fromkeys(include.component for include in package.include))
        includes = tuple(tuple(rule for rule in package.include if rule.component == name) for name in names)
        spec = AssembleSpec(package, includes)
        needs = [thin.fixed, *(by_name[name].fixed for name in names)]
        place = f"{thin.recipe.name}-{thin.version}-macos-{arch}"
        return graph.add(f"{place}/assemble{suffix}", "assemble", spec, {"recipe": data_digest(package)}, needs)

    def _pack(
        self,
        graph: _Graph,
        thins: Sequence[_Thin],
        package: Package,
        target: Target,
        sources: Sequence[FetchSpec],
        request: Request,
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
        leans_on = dict.fromkeys((need.recipe.name, need.version) for thin in thins for need in thin.needs)
        spec = PackSpec(
            name,
            package.kind,
            package.name,
            recipe,
            version,
            target,
            request.epoch,
            sources,
            inputs,
            tools,
            tuple(pair for pair in leans_on if pair[0] not in carried),
        )
        facts = {
            "recipe": digest([recipe.name, recipe.summary, recipe.homepage, recipe.license, package.name]),
            "source": digest([*(data_digest(source.pin) for source in sources), inputs, tools]),
            "target": str(target),
            "epoch": str(request.epoch),
        }
        return graph.add(f"{recipe.name}-{version}-macos-{target.arch}/pack{suffix}", "pack", spec, facts, needs)

    def choose(self, recipe: Recipe, release: Release, arch: str) -> FetchSpec:
        """Return the source that serves a slice: the first in the store, else the first that is pinned and not known
        to be out of reach.
        """  # noqa: D205 - one sentence
        passed_over = []
        possible: list[FetchSpec] = []
        missing: list[MacbuildError] = []
        for ref, candidate in source_refs(recipe):
            if (ref.version, ref.arch) != (release.version, arch):
                continue
            pin = self.lock.pin(ref)
            if pin is None:
                passed_over.append(f"{ref.source} ({candidate.fetch.describe()}) is not pinned")
            elif ref.id in self.unavailable:
                error = self.unavailable[ref.id]
                missing.append(error)
                passed_over.append(f"{ref.source} ({candidate.fetch.describe()}): {error}")
            else:
                possible.append(FetchSpec(ref, candidate, pin, tuple(passed_over)))
        for spec in possible:
            if self.store.has(digest({"kind": "fetch", "lock": _pin_digest(spec)})):
                return spec
        if possible:
            return possible[0]
        where = f"{recipe.name} {release.version} {arch}"
        if missing:
            why = "; ".join(passed_over)
            raise UnreachableError(f"no source can be had: {why}", where=where, hint=missing[-1].hint)
        raise LockError(f"no source is pinned: {'; '.join(passed_over)}", where=where, hint="run: macbuild lock")


class _Graph:
    """Collects steps; one that is asked for twice is there once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.steps: dict[str, Step] = {}

    def add(self, identity: str, kind: Kind, spec: Spec, facts: dict[str, str], needs: Sequence[Step]) -> Step:
        ingredients = {**facts, **{f"input {step.kind}": step.key for step in needs}}
        if len({step.kind for step in needs}) != len(needs):
            ingredients = {**facts, **{f"input {step.id}": step.key for step in needs}}
        tool = tool_digest(kind)
        if tool:
            ingredients["macbuild"] = tool
        key = digest({"kind": kind, **ingredients})
        cached = self.store.has(key)
        reason = "in store" if cached else self._reason(identity, ingredients)
        step = Step(identity, kind, key, ingredients, tuple(step.id for step in needs), spec, cached, reason)
        self.steps[identity] = step
        return step

    def _reason(self, identity: str, ingredients: Mapping[str, str]) -> str:
        record = self.store.record(identity)
        if record is None:
            return "first time"
        changed = [name for name in {**record, **ingredients} if record.get(name) != ingredients.get(name)]
        return f"{', '.join(sorted(changed))} changed" if changed else "not in store"


def _providers(thin: _Thin) -> list[Step]:
    """Return the steps whose results hold what a built stage leans on: the stubs it was linked with, its needs."""
    return [] if thin.built is None else [thin.built, *(need.fixed for need in thin.needs)]


def _pin_digest(spec: FetchSpec) -> str:
    return digest([spec.pin.file, spec.pin.size, spec.pin.sha256])


def _slices(thins: Sequence[_Thin], target: Target) -> list[tuple[_Thin, str]]:
    return list(zip(thins, target.slices, strict=True))


def _raised(target: Target, package: Package, carried: Sequence[Sequence[_Thin]], request: Request) -> Target:
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


def _filled(values: Sequence[T], names: Mapping[str, str]) -> list[T]:
    """Return structs with `{version}` and `{arch}` replaced in every string."""

    def fill(value: object) -> object:
        if isinstance(value, str):
            return re.sub(r"\{(version|arch)\}", lambda match: names[match[1]], value)
        if isinstance(value, list):
            return [fill(item) for item in value]
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return value

    return [from_plain(fill(msgspec.to_builtins(value)), type(value)) for value in values]
