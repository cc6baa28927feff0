"""Test plans of libraries: compiled from source, used by other components, checked by a program that links them."""

from __future__ import annotations

from pathlib import Path

import pytest

from macbuild.errors import LockError, PlanError, RecipeError
from macbuild.plan.model import AssembleSpec, BuildSpec, Need
from macbuild.recipe.load import load_recipe
from tests.support.libraries import libraries
from tests.support.sample import Sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return libraries(tmp_path)


def needs(sample: Sample, step: str, *components: str) -> tuple[Need, ...]:
    spec = sample.plan(*components, toolchain="zig").steps[step].spec
    assert isinstance(spec, BuildSpec)
    return spec.needed


def test_library_plan_ends_with_stage_and_consumer_audit(sample: Sample) -> None:
    plan = sample.plan("twice", toolchain="zig")
    assert plan.goals == ("twice-1.0-macos-arm64/build", "twice-1.0-macos-arm64/audit")
    assert [step.rpartition("/")[2] for step in plan.steps] == [
        *("fetch", "unpack", "layout", "build"),
        *("consumer", "fix", "audit"),
    ]


def test_libraries_are_built_when_everything_is(sample: Sample) -> None:
    sample.add("alpha")
    plan = sample.plan(toolchain="zig")
    assert {step.split("-")[0] for step in plan.goals} == {"alpha", "twice", "fourfold"}


def test_a_build_gets_the_source_and_all_transitive_needs(sample: Sample) -> None:
    assert needs(sample, "twice-1.0-macos-arm64/build") == (Need("twice", "source"),)
    assert needs(sample, "fourfold-1.0-macos-arm64/build") == (Need("twice", "library"),)
    consumer = needs(sample, "fourfold-1.0-macos-arm64/consumer")
    assert consumer == (Need("fourfold", "library"), Need("twice", "library"))


def test_all_targets_share_one_unpacked_source(sample: Sample) -> None:
    plan = sample.plan("twice", toolchain="zig", arch="universal2")
    assert len([step for step in plan.steps.values() if step.kind == "unpack"]) == 1
    host = sample.project().planner().host_stages("twice")
    assert host.goals == ("twice-1.0-host/build",)
    assert host.steps["twice-1.0-source/layout"].key == plan.steps["twice-1.0-source/layout"].key


def test_tool_is_built_for_this_machine_but_not_with_itself(sample: Sample) -> None:
    sample.recipes["twice"]["releases"][0]["tools"] = ["twice"]
    sample.write()
    assert needs(sample, "twice-1.0-macos-arm64/build") == (Need("twice", "source"),)
    assert needs(sample, "twice-1.0-macos-arm64/consumer") == (Need("twice", "library"), Need("twice", "tool"))
    plan = sample.plan("twice", toolchain="zig")
    assert plan.steps["twice-1.0-macos-arm64/consumer"].needs[-1] == "twice-1.0-host/build"


def test_consumer_does_not_change_the_key_of_the_library(sample: Sample) -> None:
    before = sample.plan("twice", toolchain="zig").steps
    (sample.root / "recipes/twice/tests/consumer/main.c").write_text("int main(void) { return 0; }\n")
    after = sample.plan("twice", toolchain="zig").steps
    changed = {step.rpartition("/")[2] for step in before if before[step].key != after[step].key}
    assert changed == {"consumer", "fix", "audit"}


def test_two_versions_of_one_library_in_a_build_are_refused(sample: Sample) -> None:
    release = sample.recipes["twice"]["releases"][0]
    sample.recipes["twice"]["releases"].append({**release, "version": "2.0"})
    sample.recipes["fourfold"]["releases"][0]["needs"] = ["twice@1.0"]
    sample.add_built("last", {"CMakeLists.txt": ""}, facts={"needs": ["fourfold", "twice@2.0"]}, packages=[])
    with pytest.raises(RecipeError, match=r"recipe\.toml:\d+: last 1\.0 is built with twice 2\.0 and 1\.0"):
        sample.plan("last", toolchain="zig")


def test_a_source_that_is_not_pinned_is_an_error_or_left_out(sample: Sample) -> None:
    (source,) = sample.recipes["twice"]["releases"][0]["source"]
    source["fetch"] = {"type": "url", "urls": ["http://127.0.0.1:9/twice.tar.gz"]}
    sample.write()
    (sample.root / "macbuild.lock").write_text("version = 1\npinned = []\nunpinned = []\n")
    with pytest.raises(LockError, match=r"twice 1\.0 any: no source is pinned"):
        sample.plan("fourfold", toolchain="zig")
    plan = sample.plan(toolchain="zig", skip_unreachable=True)
    assert [refusal.component for refusal in plan.refused] == ["fourfold", "twice"]
    assert not plan.goals


def test_a_repackaged_component_cannot_be_built_for_this_machine(sample: Sample) -> None:
    sample.add("alpha")
    with pytest.raises(PlanError, match="alpha: is repackaged"):
        sample.project().planner().host_stages("alpha")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"build": None}, r"has minimum_macos, and no files for macOS"),
        ({"layouts": {"other": []}}, "has the unknown layout 'archive'"),
    ],
)
def test_a_recipe_with_an_unusable_source_is_refused(sample: Sample, change: dict[str, object], message: str) -> None:
    recipe = sample.recipes["twice"]
    recipe.update(change)
    if recipe["build"] is None:
        del recipe["build"]
    with pytest.raises(RecipeError, match=message):
        sample.write()
    with pytest.raises(RecipeError, match=message):
        load_recipe(sample.recipe_path("twice"))


def packed(sample: Sample, **changes: object) -> tuple[list[str], AssembleSpec]:
    """Return the inputs of the package of a component that is linked with `fourfold`."""
    package = {"kind": "tarball", "prefix": "top/", **changes}
    sample.add_built("last", {"CMakeLists.txt": ""}, facts={"needs": ["fourfold"]}, packages=[package])
    step = sample.plan("last", toolchain="zig").steps["last-1.0-macos-arm64/assemble"]
    assert isinstance(step.spec, AssembleSpec)
    return list(step.needs), step.spec


def test_package_has_the_licences_of_static_libraries(sample: Sample) -> None:
    needs, spec = packed(sample)
    # `fourfold` has no third-party source; `twice`, which only `fourfold` needs, has one.
    assert needs == ["last-1.0-macos-arm64/fix", "twice-1.0-macos-arm64/build"]
    ((rule,),) = spec.includes
    assert (rule.component, rule.source, rule.to) == ("twice", "share/licenses/**/*", "top/licenses/")


def test_package_says_where_its_licences_are(sample: Sample) -> None:
    _, spec = packed(sample, licenses="plugs/licenses/")
    assert [rule.to for rules in spec.includes for rule in rules] == ["top/plugs/licenses/"]


def test_licence_of_a_library_for_tests_is_not_packed(sample: Sample) -> None:
    sample.recipes["twice"]["test_only"] = True
    needs, spec = packed(sample)
    assert (needs, spec.includes) == (["last-1.0-macos-arm64/fix"], ())


def test_need_without_version_is_an_error_for_several_releases(sample: Sample) -> None:
    sample.recipes["twice"]["releases"].append({**sample.recipes["twice"]["releases"][0], "version": "2.0"})
    sample.write()
    with pytest.raises(RecipeError, match="twice: has several releases, so the version must be given") as caught:
        sample.plan("fourfold", toolchain="zig")
    assert caught.value.hint == "one of twice@1.0, twice@2.0"
