"""The plan: a graph of steps, each with the key of its result and why it would run. Pure: it reads, never writes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from macbuild.data import Data, nearest
from macbuild.errors import LockError, MacbuildError, PlanError, UnreachableError
from macbuild.lock import Lock, Pinned, SourceRef, source_refs
from macbuild.recipe import Audit, Candidate, Install, Link, Prefer, Recipe, Release, Repair
from macbuild.store import Store, digest
from macbuild.target import Arch, Target, parse_version

__all__ = [
    "ArtifactPlan",
    "AuditSpec",
    "FetchSpec",
    "FixSpec",
    "InstallSpec",
    "MergeSpec",
    "PackSpec",
    "Plan",
    "Planner",
    "Refusal",
    "Request",
    "Step",
    "UnpackSpec",
]

T = TypeVar("T", bound=Data)
_PACKAGE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class FetchSpec:
    """Bring the pinned bytes of one source."""

    ref: SourceRef
    candidate: Candidate
    pin: Pinned
    passed_over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnpackSpec:
    """Unpack what was fetched."""


@dataclass(frozen=True, slots=True)
class InstallSpec:
    """Choose and arrange files into a stage."""

    rules: tuple[Install, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class FixSpec:
    """Repair install names, dependencies, rpaths and signatures of a stage."""

    repair: Repair
    arch: str


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """Merge the thin stages into a universal one."""

    archs: tuple[str, ...]
    prefer: tuple[Prefer, ...]


@dataclass(frozen=True, slots=True)
class AuditSpec:
    """Hold a stage against a policy."""

    policy: str
    target: Target
    rules: Audit


@dataclass(frozen=True, slots=True)
class PackSpec:
    """Pack an audited stage and write what describes it."""

    name: str
    recipe: Recipe
    version: str
    target: Target
    epoch: int
    sources: tuple[FetchSpec, ...]


Spec: TypeAlias = FetchSpec | UnpackSpec | InstallSpec | FixSpec | MergeSpec | AuditSpec | PackSpec
Kind: TypeAlias = Literal["fetch", "unpack", "install", "fix", "merge", "audit", "pack"]


@dataclass(frozen=True, slots=True)
class Step:
    """A node of the graph. `ingredients` is all that its result depends on; the key is the sha256 of it."""

    id: str
    kind: Kind
    key: str
    ingredients: Mapping[str, str]
    needs: tuple[str, ...]
    spec: Spec
    cached: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ArtifactPlan:
    """An artifact and the step that makes it."""

    name: str
    component: str
    version: str
    target: Target
    step: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A component that cannot be built now, and why."""

    component: str
    error: MacbuildError


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps by id, each after those it needs; the artifacts; what cannot be had."""

    steps: dict[str, Step]
    artifacts: tuple[ArtifactPlan, ...]
    refused: tuple[Refusal, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether every artifact is in the store."""
        return all(self.steps[artifact.step].cached for artifact in self.artifacts)

    def behind(self, step: str) -> list[str]:
        """Return a step and all that its result is made from."""
        found = {step: None}
        for name in reversed(self.steps):
            if name in found:
                found.update(dict.fromkeys(self.steps[name].needs))
        return list(found)

    def needed(self) -> Iterator[Step]:
        """Yield the steps that must run: those not in the store on which an artifact not in the store depends."""
        wanted: set[str] = set()
        for step in reversed(self.steps.values()):
            is_goal = any(artifact.step == step.id for artifact in self.artifacts)
            if not step.cached and (is_goal or step.id in wanted):
                wanted.add(step.id)
                wanted.update(step.needs)
        yield from (step for step in self.steps.values() if step.id in wanted and not step.cached)


@dataclass(frozen=True, slots=True)
class Request:
    """What to build: component names with an optional version, for one architecture."""

    components: tuple[tuple[str, str | None], ...]
    arch: Arch
    deployment: str | None
    policy: str
    epoch: int


@dataclass
class Planner:
    """Turns a request into a plan.

    Parameters
    ----------
    recipes, lock, store
        What the plan is made from.
    unavailable
        Sources that failed in this run, by their id, with the error.
    refuse
        Whether a component without any source left is listed as refused, not raised.
    """

    recipes: Mapping[str, Recipe]
    lock: Lock
    store: Store
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
        """
        steps: dict[str, Step] = {}
        artifacts: dict[str, ArtifactPlan] = {}
        refused = []
        for name, version in request.components:
            try:
                artifact = self._component(name, version, request, steps)
                artifacts[artifact.name] = artifact
            except (UnreachableError, LockError) as error:
                if not self.refuse:
                    raise
                refused.append(Refusal(name, error))
        return Plan(steps, tuple(artifacts.values()), tuple(refused))

    def _component(self, name: str, version: str | None, request: Request, steps: dict[str, Step]) -> ArtifactPlan:
        recipe = self.recipes.get(name)
        if recipe is None:
            raise PlanError(f"there is no recipe {name!r}", hint=nearest(name, list(self.recipes)))
        release = recipe.release(version, request.arch)
        target = _target(recipe, release, request)
        graph = _Graph(self.store, f"{name}-{release.version}-macos-")
        chosen = [self.choose(recipe, release, arch) for arch in target.slices]
        fixed = [self._thin(graph, recipe, spec, arch) for spec, arch in zip(chosen, target.slices, strict=True)]
        stage = fixed[0]
        if target.arch == "universal2":
            prefer = tuple(recipe.merge.prefer)
            spec = MergeSpec(target.slices, prefer)
            stage = graph.add("universal2", "merge", spec, {"recipe": _data(prefer)}, fixed)
        audit = AuditSpec(request.policy, target, recipe.audit)
        recipe_audit = {"recipe": _data(recipe.audit), "target": str(target), "policy": policy_digest(request.policy)}
        audited = graph.add(target.arch, "audit", audit, recipe_audit, [stage])
        artifact = f"{name}-{release.version}-macos-{target.arch}"
        pack = PackSpec(artifact, recipe, release.version, target, request.epoch, tuple(chosen))
        facts = {
            "recipe": digest([recipe.name, recipe.summary, recipe.homepage, recipe.license]),
            "source": digest([_data(spec.pin) for spec in chosen]),
            "target": str(target),
            "epoch": str(request.epoch),
        }
        packed = graph.add(target.arch, "pack", pack, facts, [stage, audited])
        steps.update(graph.steps)
        return ArtifactPlan(artifact, name, release.version, target, packed.id)

    def _thin(self, graph: _Graph, recipe: Recipe, spec: FetchSpec, arch: str) -> Step:
        names = {"version": spec.ref.version, "arch": arch}
        rules = tuple(_filled(recipe.layouts[spec.candidate.layout], names))
        links = tuple(_filled(recipe.links, names))
        (repair,) = _filled([recipe.repair], names)
        fetched = graph.add(arch, "fetch", spec, {"lock": digest([spec.pin.file, spec.pin.size, spec.pin.sha256])}, [])
        unpacked = graph.add(arch, "unpack", UnpackSpec(), {}, [fetched])
        layout = {"recipe": digest([_data(rules), _data(links)])}
        installed = graph.add(arch, "install", InstallSpec(rules, links), layout, [unpacked])
        return graph.add(arch, "fix", FixSpec(repair, arch), {"recipe": _data(repair), "arch": arch}, [installed])

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
            if self.store.has(_fetch_key(spec)):
                return spec
        if possible:
            return possible[0]
        where = f"{recipe.name} {release.version} {arch}"
        if missing:
            why = "; ".join(passed_over)
            raise UnreachableError(f"no source can be had: {why}", where=where, hint=missing[-1].hint)
        raise LockError(f"no source is pinned: {'; '.join(passed_over)}", where=where, hint="run: macbuild lock")


class _Graph:
    """Collects the steps of one component."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = prefix
        self.steps: dict[str, Step] = {}

    def add(self, arch: str, kind: Kind, spec: Spec, facts: dict[str, str], needs: list[Step]) -> Step:
        ingredients = {**facts, **{f"input {step.kind}": step.key for step in needs}}
        if len({step.kind for step in needs}) != len(needs):
            ingredients = {**facts, **{f"input {step.id}": step.key for step in needs}}
        tool = tool_digest(kind)
        if tool:
            ingredients["macbuild"] = tool
        identity = f"{self.prefix}{arch}/{kind}"
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


def _fetch_key(spec: FetchSpec) -> str:
    return digest({"kind": "fetch", "lock": digest([spec.pin.file, spec.pin.size, spec.pin.sha256])})


def _target(recipe: Recipe, release: Release, request: Request) -> Target:
    slices = Target(request.arch, "0").slices
    minimums = [part.minimum_macos for arch in slices if (part := release.slice(arch)) is not None]
    minimum = max(minimums, key=parse_version)
    if request.deployment is not None and parse_version(request.deployment) < parse_version(minimum):
        raise PlanError(
            f"{recipe.name} {release.version} for {request.arch} needs macOS {minimum}, asked for {request.deployment}",
            where="deployment target",
            hint=f"raise the deployment target to {minimum}, or choose another release: {recipe.choices()}",
        )
    return Target(request.arch, minimum)


def _data(value: object) -> str:
    return digest(msgspec.to_builtins(value))


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

    return [msgspec.convert(fill(msgspec.to_builtins(value)), type(value)) for value in values]


# What of macbuild's own code decides the result of a step, so that a change of it runs the step again.
_CODE: Mapping[str, tuple[str, ...]] = {
    "fetch": (),
    "unpack": ("fetch/unpack.py", "fetch/members.py", "fetch/tars.py", "fetch/zips.py"),
    "install": ("stage.py",),
    "fix": ("repair.py", "stage.py", "macho"),
    "merge": ("merge.py", "repair.py", "stage.py", "macho"),
    "audit": ("audit", "macho", "target.py", "steps.py"),
    "pack": ("package", "describe.py", "steps.py", "repair.py", "__init__.py"),
}
_LIBRARIES: Mapping[str, tuple[str, ...]] = {"pack": ("zlib_ng", "cyclonedx")}


@lru_cache
def tool_digest(kind: str) -> str:
    """Return the identity of the code that a step runs, empty for a step whose result its pin decides."""
    hasher = hashlib.sha256()
    for name in _CODE[kind]:
        place = _PACKAGE / name
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.suffix in {".py", ".toml", ".json"}:
                hasher.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    for name in _LIBRARIES.get(kind, ()):
        # Their own word on their version: importlib.metadata takes longer to load than all else that planning needs.
        hasher.update(f"{name} {import_module(name).__version__}\0".encode())
    return hasher.hexdigest() if _CODE[kind] else ""


def policy_digest(policy: str) -> str:
    """Return the identity of an audit policy: its name if it is built in, since that is macbuild's code; else what its
    file and those that it extends say. A policy that does not load is a `ConfigError`.
    """  # noqa: D205 - one sentence more than a line has room for
    if (_PACKAGE / "audit" / "policies" / f"{policy}.toml").is_file():
        return policy
    from macbuild.audit.policy import load_policy  # noqa: PLC0415 - the built-in ones need no reading here

    return _data(load_policy(policy))
