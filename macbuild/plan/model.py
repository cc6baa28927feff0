"""The plan as data: steps, each with the key of its result and the reason why it would run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from macbuild.errors import MacbuildError
from macbuild.recipe.lock import Pinned, SourceRef
from macbuild.recipe.model import Audit, Build, FixRules, Include, LayoutRule, Link, Package, Prefer, Recipe
from macbuild.recipe.release import Candidate
from macbuild.target import Arch, Target

__all__ = [
    "ArtifactPlan",
    "AssembleSpec",
    "AuditSpec",
    "BuildRequest",
    "BuildSpec",
    "CheckoutSpec",
    "FetchSpec",
    "FixSpec",
    "LayoutSpec",
    "MergeSpec",
    "Need",
    "PackSpec",
    "PatchSpec",
    "Plan",
    "Refusal",
    "Step",
    "UnpackSpec",
]


class FetchSpec(msgspec.Struct, frozen=True):
    """Fetch the pinned bytes of one source; `skipped` says why each better source is not used."""

    ref: SourceRef
    candidate: Candidate
    pin: Pinned
    skipped: tuple[str, ...]


class CheckoutSpec(msgspec.Struct, frozen=True):
    """Copy a folder of the user, whose files have a sha256 as `macbuild.source.checkout` computes it."""

    folder: str
    sha256: str


class UnpackSpec(msgspec.Struct, frozen=True):
    """Unpack what was fetched."""


class LayoutSpec(msgspec.Struct, frozen=True):
    """Choose and arrange files into a stage."""

    rules: tuple[LayoutRule, ...]
    links: tuple[Link, ...]


class PatchSpec(msgspec.Struct, frozen=True):
    """Apply the edits of `patches/<component>/` that a platform, `macos` or `linux`, needs to an arranged source."""

    component: str
    platform: str


class Need(msgspec.Struct, frozen=True):
    """A stage that a build uses: a component's source tree, a library for the target, or a tool for this machine."""

    component: str
    role: Literal["source", "library", "tool"]


class BuildSpec(msgspec.Struct, frozen=True):
    """Configure, compile and install a CMake project into a stage.

    Parameters
    ----------
    component
        Its name, which is that of its folder among the recipes.
    project
        The folder of the project below that one, empty for the component itself.
    folder
        Name of the folder that is kept between builds.
    build
        Inputs and settings.
    target
        What to build for, None for the machine that macbuild runs on.
    needed
        What it is built with, in the order of the step's needs.
    toolchain
        Name of the toolchain, None for the default.
    settled
        Digest of all but the component's own files. When it differs from that of the last build in the kept folder, the
        build starts from nothing.
    """

    component: str
    project: str
    folder: str
    build: Build
    target: Target | None
    needed: tuple[Need, ...]
    toolchain: str | None
    settled: str


class FixSpec(msgspec.Struct, frozen=True):
    """Fix install names, dependencies, rpaths and signatures of a stage; leave `exports` by glob on the file."""

    rules: FixRules
    arch: str
    exports: tuple[tuple[str, tuple[str, ...]], ...] = ()


class AssembleSpec(msgspec.Struct, frozen=True):
    """Arrange a fixed stage for one package, with what it carries of needed components, in the order of the needs."""

    component: str
    package: Package
    includes: tuple[tuple[Include, ...], ...]


class MergeSpec(msgspec.Struct, frozen=True):
    """Merge the thin stages into a universal one."""

    archs: tuple[str, ...]
    prefer: tuple[Prefer, ...]


class AuditSpec(msgspec.Struct, frozen=True):
    """Audit a stage with a policy; the needs after the first provide what is not in it.

    `requirements` are the Python packages that a wheel of it requires.
    """

    policy: str
    target: Target
    rules: Audit
    requirements: tuple[str, ...] = ()


class PackSpec(msgspec.Struct, frozen=True):
    """Pack an audited stage and write what describes it.

    Parameters
    ----------
    name, kind
        Name of a tarball without suffix, which is also that of its one folder; and what it is.
    package
        Name of the distribution.
    inputs
        Size in bytes and sha256 of the component's own source files, for one that is built.
    tools
        What built it, with versions.
    depends_on
        Needed components with their versions that the package does not carry.
    """

    name: str
    kind: Literal["tarball", "wheel"]
    package: str
    recipe: Recipe
    version: str
    target: Target
    epoch: int
    sources: tuple[FetchSpec, ...]
    inputs: tuple[int, str] | None = None
    tools: dict[str, str] = {}
    depends_on: tuple[tuple[str, str], ...] = ()


Spec: TypeAlias = (
    FetchSpec
    | CheckoutSpec
    | UnpackSpec
    | LayoutSpec
    | PatchSpec
    | BuildSpec
    | FixSpec
    | AssembleSpec
    | MergeSpec
    | AuditSpec
    | PackSpec
)
Kind: TypeAlias = Literal[
    "fetch", "checkout", "unpack", "layout", "patch", "build", "fix", "assemble", "merge", "audit", "pack"
]


class Step(msgspec.Struct, frozen=True):
    """One step. `ingredients` is everything that its result depends on; the key is the sha256 of it."""

    id: str
    kind: Kind
    key: str
    ingredients: Mapping[str, str]
    needs: tuple[str, ...]
    spec: Spec
    cached: bool
    reason: str

    @property
    def component(self) -> str:
        """The component that it belongs to; no name of one has a hyphen."""
        return self.id.partition("-")[0]

    @property
    def arch(self) -> str | None:
        """The architecture of the Macs that it is for; None for sources and for what runs on this machine."""
        return self.id.rpartition("/")[0].partition("-macos-")[2] or None


class ArtifactPlan(msgspec.Struct, frozen=True):
    """An artifact and the step that makes it."""

    name: str
    component: str
    version: str
    target: Target
    step: str


class Refusal(msgspec.Struct, frozen=True):
    """A component that cannot be built now, and why."""

    component: str
    error: MacbuildError


class Plan(msgspec.Struct, frozen=True):
    """Steps by id, each after those it needs, and what is wanted of them.

    Parameters
    ----------
    artifacts
        What is packed.
    refused
        Components that cannot be built now.
    stages
        Steps whose stages are wanted as they are.
    checks
        Audits of what is linked with these.
    remarks
        What a person may not expect: what is left out, and local sources that differ from the lock.
    """

    steps: dict[str, Step]
    artifacts: tuple[ArtifactPlan, ...]
    refused: tuple[Refusal, ...] = ()
    stages: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def goals(self) -> tuple[str, ...]:
        """The steps whose results are wanted."""
        return (*(artifact.step for artifact in self.artifacts), *self.stages, *self.checks)

    @property
    def idle(self) -> bool:
        """True if everything that is wanted is in the store."""
        return all(self.steps[goal].cached for goal in self.goals)

    def behind(self, step: str) -> list[str]:
        """Return a step and all steps that its result is made from."""
        found = {step: None}
        for name in reversed(self.steps):
            if name in found:
                found.update(dict.fromkeys(self.steps[name].needs))
        return list(found)

    def needed(self) -> Iterator[Step]:
        """Yield the steps that must run: those not in the store on which a goal that is not in the store depends."""
        wanted = set(self.goals)
        for step in reversed(self.steps.values()):
            if step.id in wanted and not step.cached:
                wanted.update(step.needs)
        yield from (step for step in self.steps.values() if step.id in wanted and not step.cached)


class BuildRequest(msgspec.Struct, frozen=True):
    """Component names with an optional version, to be built for one architecture.

    Parameters
    ----------
    toolchain
        Name of the toolchain, None for the default.
    pack
        True to make artifacts, False to stop at the fixed stages.
    """

    components: tuple[tuple[str, str | None], ...]
    arch: Arch
    deployment: str | None
    policy: str
    epoch: int
    toolchain: str | None = None
    pack: bool = True
