from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from macbuild.errors import ConfigError, LockError, PlanError, RecipeError, UnreachableError, UsageError
from macbuild.plan.model import ArtifactPlan, AuditSpec, BuildRequest, PackSpec, Plan
from macbuild.store import digest
from tests.support.sample import Sample, files, tarball


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = Sample(tmp_path)
    sample.add("alpha", archs=("arm64", "x86_64"))
    sample.add("alpha", version="2.0")
    return sample


def keys(plan: Plan) -> dict[str, str]:
    return {step.kind: step.key for step in plan.steps.values()}


def changed(before: Plan, after: Plan) -> set[str]:
    return {kind for kind, key in keys(after).items() if keys(before).get(kind) != key}


def test_steps_are_in_a_runnable_order(sample: Sample) -> None:
    plan = sample.plan("alpha@1.0", arch="universal2")
    seen: set[str] = set()
    for step in plan.steps.values():
        assert set(step.needs) <= seen
        seen.add(step.id)
    kinds = [step.kind for step in plan.steps.values()]
    assert kinds == [*["fetch", "unpack", "layout", "fix"] * 2, "merge", "audit", "pack"]


def test_a_key_is_the_digest_of_the_ingredients(sample: Sample) -> None:
    for step in sample.plan().steps.values():
        assert step.key == digest({"kind": step.kind, **step.ingredients})


def test_the_same_inputs_in_another_folder_give_the_same_keys(sample: Sample, tmp_path: Path) -> None:
    other = Sample(tmp_path / "other" / "place")
    other.archives.mkdir(parents=True)
    other.recipes = sample.recipes
    for path in sample.archives.iterdir():
        (other.archives / path.name).write_bytes(path.read_bytes())
    other.write()
    assert keys(sample.plan()) == keys(other.plan())


def relock(sample: Sample) -> None:
    sample.add("beta")
    (sample.archives / "alpha-2.0-arm64.tar.gz").write_bytes((sample.archives / "beta-1.0-arm64.tar.gz").read_bytes())
    del sample.recipes["beta"]
    sample.recipe_path("beta").unlink()


def rules(sample: Sample) -> None:
    sample.recipes["alpha"]["layouts"]["archive"].pop()


def links(sample: Sample) -> None:
    sample.recipes["alpha"]["links"] = [{"path": "lib/x", "target": "libalpha.dylib", "reason": "r"}]


def fix(sample: Sample) -> None:
    sample.recipes["alpha"]["fix"] = {"ids": [{"file": "*", "id": "@rpath/x", "reason": "r"}]}


def exempt(sample: Sample) -> None:
    sample.recipes["alpha"]["audit"] = {"exempt": [{"rule": "sdk", "file": "*", "reason": "r"}]}


def summary(sample: Sample) -> None:
    sample.recipes["alpha"]["summary"] = "another"


def unused_layout(sample: Sample) -> None:
    sample.recipes["alpha"]["layouts"]["other"] = [{"from": "*", "to": "x/"}]


def other_release(sample: Sample) -> None:
    sample.sources("alpha", release=0)[0]["name"] = "renamed"


def minimum(sample: Sample) -> None:
    sample.recipes["alpha"]["releases"][1]["arm64"]["minimum_macos"] = "12.0"


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (relock, {"fetch", "unpack", "layout", "fix", "audit", "pack"}),
        (rules, {"layout", "fix", "audit", "pack"}),
        (links, {"layout", "fix", "audit", "pack"}),
        (fix, {"fix", "audit", "pack"}),
        (exempt, {"audit", "pack"}),
        (minimum, {"audit", "pack"}),
        (summary, {"pack"}),
        (unused_layout, set()),
        (other_release, set()),
    ],
)
def test_ingredient_changes_only_its_step_and_those_downstream(
    sample: Sample, change: Callable[[Sample], None], kinds: set[str]
) -> None:
    before = sample.plan("alpha")
    change(sample)
    sample.write()
    assert changed(before, sample.plan("alpha")) == kinds


def test_policy_and_epoch_are_ingredients(sample: Sample, tmp_path: Path) -> None:
    before = sample.plan()
    assert changed(before, sample.plan(policy="wheel")) == {"audit", "pack"}
    own = tmp_path / "own.toml"
    own.write_text('extends = "release"\n')
    first = sample.plan(policy=str(own))
    own.write_text('extends = "release"\n[severity]\nsdk = "off"\n')
    assert changed(first, sample.plan(policy=str(own))) == {"audit", "pack"}
    planner = sample.project().planner()
    requests = [BuildRequest((("alpha", None),), "arm64", None, "release", epoch) for epoch in (1, 2)]
    assert changed(*map(planner.plan, requests)) == {"pack"}


def test_a_policy_that_does_not_load_is_a_planning_error(sample: Sample) -> None:
    policy = sample.root / "policy.toml"
    policy.write_text('extends = "relase"\n')
    with pytest.raises(ConfigError, match="relase"):
        sample.plan(policy=str(policy))


def test_reasons_are_first_time_changed_input_and_not_in_store(sample: Sample) -> None:
    def reasons() -> dict[str, str]:
        return {step.kind: step.reason for step in sample.plan("alpha").steps.values()}

    assert set(reasons().values()) == {"first time"}
    sample.make("alpha")
    assert set(reasons().values()) == {"in store"}
    rules(sample)
    sample.write()
    told = reasons()
    assert told["unpack"] == "in store"
    assert told["layout"] == "recipe changed"
    assert told["fix"] == "input layout changed"
    assert told["pack"] == "input audit, input fix changed"
    sample.make("alpha")
    project = sample.project()
    project.store.discard(keys(sample.plan("alpha"))["pack"])
    assert reasons()["pack"] == "not in store"


def test_without_the_pack_result_only_packing_is_needed(sample: Sample) -> None:
    sample.make("alpha")
    sample.project().store.discard(keys(sample.plan("alpha"))["pack"])
    assert [step.kind for step in sample.plan("alpha").needed()] == ["pack"]


def test_missing_intermediate_result_is_not_made_again(sample: Sample) -> None:
    sample.make("alpha")
    for kind in ("unpack", "fix"):
        sample.project().store.discard(keys(sample.plan("alpha"))[kind])
    plan = sample.plan("alpha")
    assert plan.idle
    assert list(plan.needed()) == []


def test_universal2_uses_the_newest_version_with_both_slices(sample: Sample) -> None:
    (artifact,) = sample.plan("alpha", arch="universal2").artifacts
    assert artifact.name == "alpha-1.0-macos-universal2"


def test_universal2_with_one_slice_is_refused_with_a_choice(sample: Sample) -> None:
    with pytest.raises(PlanError) as caught:
        sample.plan("alpha@2.0", arch="universal2")
    assert caught.value.hint == "build alpha@1.0 for universal2"


def test_the_deployment_target_of_universal2_is_the_larger_one(sample: Sample) -> None:
    sample.recipes["alpha"]["releases"][0]["x86_64"]["minimum_macos"] = "10.15"
    sample.recipes["alpha"]["releases"][0]["arm64"]["minimum_macos"] = "9.9"
    sample.write()
    assert str(sample.plan("alpha", arch="universal2").artifacts[0].target) == "macos-universal2-10.15"


def test_a_deployment_target_below_the_inputs_is_refused(sample: Sample) -> None:
    with pytest.raises(PlanError, match=r"needs macOS 11\.0, asked for 10\.15") as caught:
        sample.plan("alpha", deployment_target="10.15")
    assert "raise the deployment target to 11.0" in str(caught.value.hint)
    sample.plan("alpha", deployment_target="11.0")
    sample.plan("alpha", deployment_target="14.0")


def test_an_unknown_component_is_refused_with_a_suggestion(sample: Sample) -> None:
    with pytest.raises(PlanError) as caught:
        sample.plan("alhpa")
    assert caught.value.hint == "did you mean 'alpha'?"


@pytest.mark.parametrize("text", ["", "@1.0", "alpha@"])
def test_malformed_component_is_a_usage_error(sample: Sample, text: str) -> None:
    with pytest.raises(UsageError):
        sample.plan(text)


def test_versions_are_separate_artifacts_and_repeats_are_one(sample: Sample) -> None:
    names = [artifact.name for artifact in sample.plan("alpha@1.0", "alpha", "alpha@2.0").artifacts]
    assert names == ["alpha-1.0-macos-arm64", "alpha-2.0-macos-arm64"]


class TestSources:
    @pytest.fixture
    def two(self, tmp_path: Path) -> Sample:
        sample = Sample(tmp_path)
        sample.add("alpha")
        sample.serve_first("alpha", "http://127.0.0.1:9")
        return sample

    def source(self, sample: Sample, unavailable: dict[str, UnreachableError] | None = None) -> str:
        project = sample.project()
        plan = project.planner(dict(unavailable or {})).plan(project.request([]))
        spec = plan.steps["alpha-1.0-macos-arm64/fetch"].spec
        return spec.candidate.name  # type: ignore[union-attr]

    def test_the_first_pinned_one_is_used(self, two: Sample) -> None:
        assert self.source(two) == "remote"

    def test_unreachable_source_is_skipped(self, two: Sample) -> None:
        assert self.source(two, {"alpha 1.0 arm64 remote": UnreachableError("gone")}) == "local"

    def test_one_that_is_not_pinned_is_never_used(self, two: Sample) -> None:
        path = two.root / "macbuild.lock"
        path.write_text(path.read_text().replace('source = "remote"', 'source = "removed"'))
        assert self.source(two) == "local"
        two.sources("alpha").pop()
        two.write()
        path.write_text("version = 1")
        with pytest.raises(LockError, match="no source is pinned") as caught:
            self.source(two)
        assert caught.value.hint == "run: macbuild lock alpha"

    def test_source_in_the_store_is_preferred(self, two: Sample) -> None:
        extra = two.archives / "other.tar.gz"
        extra.write_bytes((two.archives / "alpha-1.0-arm64.tar.gz").read_bytes() + b"\0")
        two.sources("alpha")[0]["fetch"]["urls"] = ["http://127.0.0.1:9/other.tar.gz"]
        two.write()
        assert self.source(two) == "remote"
        two.sources("alpha").pop(0)
        two.write()
        two.make()
        two.serve_first("alpha", "http://127.0.0.1:9")
        two.sources("alpha")[0]["fetch"]["urls"] = ["http://127.0.0.1:9/other.tar.gz"]
        two.write()
        assert self.source(two) == "local"

    def test_all_components_without_a_source_are_named_at_once(self, tmp_path: Path) -> None:
        sample = Sample(tmp_path)
        for name in ("alpha", "beta", "gamma"):
            sample.add(name)
        for name in ("alpha", "gamma"):
            sample.serve_only(name, "http://127.0.0.1:9")
        (sample.root / "macbuild.lock").write_text("version = 1\n")
        with pytest.raises(LockError, match="no source is available for 2 components: alpha, gamma") as caught:
            sample.plan()
        assert caught.value.hint is not None
        assert "--skip-unreachable" in caught.value.hint
        assert caught.value.hint.endswith("run: macbuild lock alpha gamma")

    def test_without_any_source_the_error_names_each(self, two: Sample) -> None:
        names = ("alpha 1.0 arm64 remote", "alpha 1.0 arm64 local")
        gone = {name: UnreachableError(f"{name} is gone") for name in names}
        with pytest.raises(UnreachableError) as caught:
            self.source(two, gone)
        assert all(f"{name} is gone" in caught.value.message for name in names)


class TestCarries:
    """A component that is built without `alpha`, which is in its tarball but not in its wheel."""

    @pytest.fixture
    def plug(self, tmp_path: Path) -> Sample:
        sample = Sample(tmp_path)
        sample.add("alpha", archs=("arm64", "x86_64"))
        for arch, minimum in (("arm64", "14.0"), ("x86_64", "13.4")):
            sample.recipes["alpha"]["releases"][0][arch]["minimum_macos"] = minimum
        include = {"component": "alpha", "from": "lib/*", "to": "plugs/"}
        sample.add_built(
            "plug",
            {"CMakeLists.txt": "project(plug)\n", "pyproject.toml": "[project]\n"},
            facts={"minimum_macos": "11.0", "carries": ["alpha"]},
            packages=[
                {"kind": "tarball", "name": "plug-in", "include": [include]},
                {"kind": "wheel", "name": "plug-in", "prefix": "top/"},
            ],
        )
        return sample

    @staticmethod
    def upstream(plan: Plan, name: str) -> set[str]:
        """Return the steps that make the artifact with the name."""
        (artifact,) = [artifact for artifact in plan.artifacts if artifact.name == name]
        found: set[str] = set()
        waiting = [artifact.step]
        while waiting:
            found.add(step := waiting.pop())
            waiting += plan.steps[step].needs
        return found

    @pytest.mark.parametrize(("arch", "minimum"), [("arm64", "14.0"), ("x86_64", "13.4"), ("universal2", "14.0")])
    def test_package_minimum_macos_is_max_of_carried(self, plug: Sample, arch: str, minimum: str) -> None:
        targets = {artifact.name.rpartition(" ")[2]: artifact.target for artifact in self.plan(plug, arch=arch)}
        assert {kind: str(target) for kind, target in targets.items()} == {
            "tarball": f"macos-{arch}-{minimum}",
            "wheel": f"macos-{arch}-11.0",
        }

    @staticmethod
    def plan(sample: Sample, **settings: object) -> tuple[ArtifactPlan, ...]:
        return sample.plan("plug", toolchain="zig", **settings).artifacts

    def test_build_is_independent_of_the_packages_contents(self, plug: Sample) -> None:
        before = plug.plan("plug", toolchain="zig")
        build = before.steps["plug-1.0-macos-arm64/build"]
        assert build.ingredients["target"] == "macos-arm64-11.0"
        assert build.needs == ()
        archive = plug.archives / "alpha-1.0-arm64.tar.gz"
        archive.write_bytes(tarball(files("alpha", "arm64", salt=b"another")))
        plug.write()
        after = plug.plan("plug", toolchain="zig")
        assert after.steps[build.id].key == build.key
        packed = [f"plug-1.0-macos-arm64/pack {kind}" for kind in ("tarball", "wheel")]
        assert [after.steps[step].key == before.steps[step].key for step in packed] == [False, True]

    @pytest.mark.parametrize("arch", ["arm64", "universal2"])
    def test_wheel_does_not_depend_on_the_tarballs_contents(self, plug: Sample, arch: str) -> None:
        plan = plug.plan("plug", toolchain="zig", arch=arch)
        wheel = self.upstream(plan, f"plug-1.0-macos-{arch} wheel")
        assert "plug-1.0-macos-arm64/build" in wheel
        assert not {step for step in wheel if step.startswith("alpha")}
        tarball = self.upstream(plan, f"plug-1.0-macos-{arch} tarball")
        slices = ("arm64", "x86_64") if arch == "universal2" else (arch,)
        assert {f"alpha-1.0-macos-{each}/fix" for each in slices} <= tarball

    def test_a_deployment_target_below_the_contents_is_refused(self, plug: Sample) -> None:
        words = r"the tarball holds alpha 1\.0, which needs macOS 14\.0, asked for 13\.0"
        with pytest.raises(PlanError, match=words) as caught:
            self.plan(plug, deployment_target="13.0")
        assert caught.value.where == "deployment target"
        assert caught.value.hint == "raise the deployment target to 14.0"
        assert {artifact.target.deployment for artifact in self.plan(plug, deployment_target="14.0")} == {"14.0"}
        assert {artifact.target.deployment for artifact in self.plan(plug, deployment_target="15.0")} == {"15.0"}

    def test_stage_alone_can_target_an_older_macos(self, plug: Sample) -> None:
        project = plug.project(toolchain="zig", deployment_target="12.0")
        plan = project.planner().plan(project.request(["plug"], pack=False))
        assert plan.stages == ("plug-1.0-macos-arm64/fix",)
        assert not [step for step in plan.steps if step.startswith("alpha")]

    def test_including_an_unrelated_component_is_refused(self, plug: Sample) -> None:
        plug.add("beta")
        plug.recipes["plug"]["packages"][0]["include"][0]["component"] = "beta"
        plug.write()
        with pytest.raises(RecipeError, match="the package includes beta, which it neither needs nor carries"):
            self.plan(plug)

    def test_unknown_carried_release_is_refused(self, plug: Sample) -> None:
        plug.recipes["plug"]["releases"][0]["carries"] = ["alpha@2.0"]
        plug.write()
        with pytest.raises(PlanError, match=r"2\.0"):
            self.plan(plug)

    def test_need_with_a_newer_minimum_macos_is_refused(self, plug: Sample) -> None:
        facts = plug.recipes["plug"]["releases"][0]
        facts["needs"] = facts.pop("carries")
        plug.write()
        with pytest.raises(RecipeError, match=r"needs alpha 1\.0, which needs macOS 14\.0"):
            self.plan(plug)

    def test_the_audit_and_the_manifest_list_carried_components(self, plug: Sample) -> None:
        plan = plug.plan("plug", toolchain="zig", arch="universal2")
        specs = {name.rpartition("/")[2]: step.spec for name, step in plan.steps.items()}
        for kind, minimum, archs in (("tarball", "14.0", ["x86_64", "arm64"]), ("wheel", "11.0", [])):
            audit, pack = specs[f"audit {kind}"], specs[f"pack {kind}"]
            assert isinstance(audit, AuditSpec)
            assert isinstance(pack, PackSpec)
            assert [audit.target.deployment, pack.target.deployment] == [minimum, minimum]
            assert [source.ref.id for source in pack.sources] == [f"alpha 1.0 {arch} local" for arch in archs]
