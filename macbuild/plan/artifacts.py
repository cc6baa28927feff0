"""The steps from the fixed stages of a component to its artifacts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from macbuild.audit.model import Exemption
from macbuild.build.programs import package_version
from macbuild.data import filled
from macbuild.errors import PlanError, RecipeError, nearest
from macbuild.plan.components import ComponentPlan, ComponentPlanner
from macbuild.plan.keys import data_digest, policy_digest
from macbuild.plan.licenses import with_licenses
from macbuild.plan.model import (
    ArtifactPlan,
    AssembleSpec,
    AuditSpec,
    BuildRequest,
    FetchSpec,
    MergeSpec,
    PackSpec,
    Step,
)
from macbuild.recipe.inputs import inputs_digest
from macbuild.recipe.model import Audit, Include, Package, Recipe
from macbuild.recipe.release import Release
from macbuild.store import digest
from macbuild.target import Target, parse_version

__all__ = ["ArtifactPlanner"]


@dataclass
class ArtifactPlanner:
    """Adds the steps that make artifacts of fixed stages to a plan."""

    components: ComponentPlanner
    request: BuildRequest

    def of(self, plans: list[ComponentPlan], target: Target, release: Release) -> list[ArtifactPlan]:
        """Return the artifacts of a component."""
        builder, request, recipe = self.components.builder, self.request, plans[0].recipe
        artifacts = []
        for package in recipe.artifacts:
            suffix = _suffix(recipe, package)
            held = [self._held(plan, package, arch) for plan, arch in _slices(plans, target)]
            own = _raised(target, package, held, request)
            stages = [self._assembled(plan, package, arch) for plan, arch in _slices(plans, target)]
            place = f"{recipe.name}-{release.version}-macos-{target.arch}"
            stage = stages[0]
            if target.arch == "universal2":
                prefer = tuple(rule for part in _packed(recipe, package, held[0]) for rule in part.merge.prefer)
                merge = MergeSpec(target.slices, prefer)
                stage = builder.add(f"{place}/merge{suffix}", "merge", merge, {"recipe": data_digest(prefer)}, stages)
            providers = [step for plan in plans for step in _providers(plan)]
            requirements = tuple(recipe.build.python_packages.values()) if recipe.build else ()
            rules = _rules(recipe, package, held[0])
            audit = AuditSpec(request.policy, own, rules, requirements if package.kind == "wheel" else ())
            facts = {"recipe": data_digest(rules), "target": str(own), "policy": policy_digest(request.policy)}
            audited = builder.add(f"{place}/audit{suffix}", "audit", audit, facts, [stage, *providers])
            sources = [source for plan in (*plans, *chain(*held)) for source in plan.sources]
            packed = self._pack(plans, package, target=own, sources=sources, needs=[stage, audited], suffix=suffix)
            artifacts.append(ArtifactPlan(f"{place}{suffix}", recipe.name, release.version, own, packed.id))
        return artifacts

    def _carried(self, plan: ComponentPlan, package: Package, arch: str) -> dict[str, ComponentPlan]:
        """Return the components, not linked with its own, that a package holds files of."""
        names = dict.fromkeys(include.component for include in package.include)
        carries = plan.part.carries
        return {
            name: self.components.other(name, carries[name], arch, self.request) for name in names if name in carries
        }

    def _held(self, plan: ComponentPlan, package: Package, arch: str) -> list[ComponentPlan]:
        """Return what a package carries, and what the tarballs that it takes carry."""
        found = []
        packed = {include.component for include in package.include if include.packed}
        for name, other in self._carried(plan, package, arch).items():
            tarball = other.recipe.tarball
            found += [other, *(self._held(other, tarball, arch) if name in packed and tarball else ())]
        return found

    def _assembled(self, plan: ComponentPlan, package: Package, arch: str) -> Step:
        """Return the step that arranges a package."""
        if plan.built is None:
            return plan.fixed
        optional = self.components.optional(plan.recipe.name) - plan.part.needs.keys() - plan.part.carries.keys()
        suffix = _suffix(plan.recipe, package)
        carried = self._carried(plan, package, arch)
        package = with_licenses(_without(package, optional), plan, carried)
        (package,) = filled([package], {"version": plan.version, "arch": arch})
        others = {need.recipe.name: need for each in (*carried.values(), plan) for need in each.closure()}
        others |= {need.recipe.name: need for need in plan.needs} | carried
        names = list(dict.fromkeys(include.component for include in package.include))
        includes = tuple(tuple(rule for rule in package.include if rule.component == name) for name in names)
        steps = [self._taken(plan.recipe.name, others, rules, arch) for rules in includes]
        spec = AssembleSpec(plan.recipe.name, package, includes)
        facts = {"recipe": data_digest(package)}
        if package.files:
            globs = [rule.source for rule in package.files]
            recipes, name = self.components.recipes, plan.recipe.name
            facts["source"] = inputs_digest(recipes.root_of(name), recipes.folder(name), globs)[1]
        place = f"{plan.recipe.name}-{plan.version}-macos-{arch}"
        return self.components.builder.add(f"{place}/assemble{suffix}", "assemble", spec, facts, [plan.fixed, *steps])

    def _taken(self, component: str, others: Mapping[str, ComponentPlan], rules: Sequence[Include], arch: str) -> Step:
        """Return the step that makes what a package of a component takes of another one."""
        name = rules[0].component
        if name not in others:
            hint = nearest(name, list(others))
            where = self.components.named_in(component, name)
            raise RecipeError(
                f"the package includes {name}, which it neither needs nor carries", where=where, hint=hint
            )
        other = others[name]
        if not any(rule.packed for rule in rules):
            return other.fixed
        tarball = other.recipe.tarball
        if tarball is None or not all(rule.packed for rule in rules):
            problem = "has no tarball" if tarball is None else "cannot be included packed and not"
            where = self.components.named_in(component, name)
            raise RecipeError(f"{name} {problem}, and the package includes it packed", where=where)
        return self._assembled(other, tarball, arch)

    def _pack(
        self,
        plans: Sequence[ComponentPlan],
        package: Package,
        *,
        target: Target,
        sources: Sequence[FetchSpec],
        needs: list[Step],
        suffix: str,
    ) -> Step:
        recipe, version = plans[0].recipe, plans[0].version
        sources = tuple({source.ref.id: source for source in sources}.values())
        name = f"{package.name}-{version}-macos-{target.arch}"
        inputs, tools = plans[0].inputs, dict(plans[0].tools)
        if package.kind == "wheel":
            tools["scikit-build-core"] = package_version("scikit_build_core") or ""
        carried = {include.component for include in package.include}
        # What has no artifact is linked statically.
        needs_of = [need for plan in plans for need in plan.needs if need.recipe.artifacts]
        depends_on = dict.fromkeys((need.recipe.name, need.version) for need in needs_of)
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
            tuple(pair for pair in depends_on if pair[0] not in carried),
        )
        facts = {
            "recipe": digest([recipe.name, recipe.summary, recipe.homepage, recipe.license, package.name]),
            "source": digest([*(data_digest(source.pin) for source in sources), inputs, tools]),
            "target": str(target),
            "epoch": str(self.request.epoch),
        }
        place = f"{recipe.name}-{version}-macos-{target.arch}"
        return self.components.builder.add(f"{place}/pack{suffix}", "pack", spec, facts, needs)


def _without(package: Package, components: Collection[str]) -> Package:
    """Return a package that holds nothing of some components."""
    kept = [include for include in package.include if include.component not in components]
    return msgspec.structs.replace(package, include=kept)


def _suffix(recipe: Recipe, package: Package) -> str:
    return "" if len(recipe.artifacts) == 1 else f" {package.kind}"


def _packed(recipe: Recipe, package: Package, held: Sequence[ComponentPlan]) -> list[Recipe]:
    """Return the recipe of a package, and those of the components whose tarballs it takes."""
    names = {include.component for include in package.include if include.packed}
    return [recipe, *(other.recipe for other in held if other.recipe.name in names)]


def _rules(recipe: Recipe, package: Package, held: Sequence[ComponentPlan]) -> Audit:
    """Return the audit rules of a package."""
    audits = [part.audit for part in _packed(recipe, package, held)]
    exports = {glob: rule for audit in reversed(audits) for glob, rule in audit.exports.items()}
    exempt = [exemption for audit in audits for exemption in audit.exempt if _may_match(exemption, recipe, package)]
    return Audit(exempt=exempt, exports=exports)


def _may_match(exemption: Exemption, recipe: Recipe, package: Package) -> bool:
    """Tell if an exemption is for a package: its path begins with the package's prefix, and with no longer one."""
    if exemption.file[0] in "*?[":
        return True
    prefixes = [each.prefix for each in recipe.artifacts if exemption.file.startswith(each.prefix)]
    return package.prefix == max(prefixes, key=len, default="")


def _providers(plan: ComponentPlan) -> list[Step]:
    """Return the steps whose results hold what a built stage depends on: its link stubs, its needs."""
    return [] if plan.built is None else [plan.built, *(need.fixed for need in plan.needs)]


def _slices(plans: Sequence[ComponentPlan], target: Target) -> list[tuple[ComponentPlan, str]]:
    return list(zip(plans, target.slices, strict=True))


def _raised(
    target: Target, package: Package, carried: Sequence[Sequence[ComponentPlan]], request: BuildRequest
) -> Target:
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
