"""Test options of components: the user's choice, refusals, and their effect on a plan."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from macbuild.errors import ConfigError, LockError, PlanError, RecipeError, UsageError
from macbuild.plan.model import AuditSpec, BuildSpec, MergeSpec, Plan
from macbuild.recipe.load import load_recipes
from macbuild.recipe.options import Choice, Option
from tests.support.libraries import own, with_engine
from tests.support.sample import Sample

TABLE = {
    "http": Option(summary="HTTP"),
    "metrics": Option(summary="metrics", requires=["statistics"]),
    "statistics": Option(summary="statistics"),
    "debug": Option(summary="more output", default=False),
    "s3": Option(summary="S3", refused="there is no recipe"),
}


def of(*wanted: str, without: tuple[str, ...] = (), missing: tuple[str, ...] = ()) -> set[str]:
    """Return the options of the table that are on."""
    return {name for name, on in Choice(wanted, without).of("core", TABLE, missing).items() if on}


def test_options_have_defaults_that_the_user_can_override() -> None:
    assert of() == {"http", "metrics", "statistics"}
    assert of("debug") == {"http", "metrics", "statistics", "debug"}
    assert of("http", without=("metrics",)) == {"http", "statistics"}
    assert of(without=("http", "metrics", "statistics", "debug", "s3")) == set()
    assert of(missing=("http",)) == {"metrics", "statistics"}


def test_a_refused_option_is_off_or_an_error_with_the_reason() -> None:
    assert "s3" not in of()
    with pytest.raises(PlanError, match="core: cannot be built with s3: there is no recipe"):
        of("s3")


@pytest.mark.parametrize(("without", "missing"), [(("statistics",), ()), ((), ("statistics",))])
def test_option_without_its_requirement_names_both_solutions(
    without: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    with pytest.raises(PlanError, match="core: metrics requires statistics, which is off") as caught:
        of(without=without, missing=missing)
    assert caught.value.hint == "add --without metrics, or --with statistics"
    assert of(without=("metrics", *without), missing=missing) == {"http"}


def test_unknown_option_is_refused_with_a_suggestion() -> None:
    tables = [TABLE, {"python": Option(summary="Python")}]
    Choice(("python",), ("http",)).check(tables)
    for choice, flag in ((Choice(("metric",)), "--with"), (Choice((), ("metric",)), "--without")):
        with pytest.raises(UsageError, match="there is no option 'metric'") as caught:
            choice.check(tables)
        assert (caught.value.where, caught.value.hint) == (flag, "did you mean 'metrics'?")


def test_an_option_cannot_be_both_wanted_and_unwanted() -> None:
    with pytest.raises(UsageError, match="http is both wanted and not"):
        Choice(("debug", "http"), ("http",)).check([TABLE])


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return with_engine(tmp_path)


def planned(sample: Sample, *wanted: str, without: tuple[str, ...] = (), sources: tuple[str, ...] = ()) -> Plan:
    choice = {"wanted_options": list(wanted), "unwanted_options": list(without)}
    folders = [*own(sample.root), *sources]
    return sample.plan("engine", toolchain="zig", sources=folders, **choice)


def spec(plan: Plan) -> BuildSpec:
    spec = plan.steps["engine-1.0-macos-arm64/build"].spec
    assert isinstance(spec, BuildSpec)
    return spec


def definitions(plan: Plan, prefix: str = "ENGINE_T") -> dict[str, str]:
    return {name: value for name, value in spec(plan).build.definitions.items() if name.startswith(prefix)}


def test_options_become_cache_variables(sample: Sample) -> None:
    assert definitions(planned(sample)) == {"ENGINE_TRACE": "ON", "ENGINE_TURBO": "OFF"}
    assert definitions(planned(sample, without=("trace",))) == {"ENGINE_TRACE": "OFF", "ENGINE_TURBO": "OFF"}


def test_key_depends_on_chosen_options_not_on_their_texts(sample: Sample) -> None:
    key = planned(sample).steps["engine-1.0-macos-arm64/build"].key
    assert planned(sample, without=("trace",)).steps["engine-1.0-macos-arm64/build"].key != key
    assert planned(sample, "trace").steps["engine-1.0-macos-arm64/build"].key == key
    sample.recipes["engine"]["build"]["options"]["turbo"]["refused"] = "it melts"
    sample.write()
    assert planned(sample).steps["engine-1.0-macos-arm64/build"].key == key


def test_refused_and_unknown_options_are_errors_in_a_plan(sample: Sample) -> None:
    with pytest.raises(PlanError, match="engine: cannot be built with turbo: it burns"):
        planned(sample, "turbo")
    with pytest.raises(UsageError, match="--without: there is no option 'trase'"):
        planned(sample, without=("trase",))


@pytest.mark.parametrize("key", ["wanted_options", "unwanted_options"])
def test_empty_option_name_is_refused(sample: Sample, key: str) -> None:
    with pytest.raises((UsageError, ConfigError)):
        sample.plan("engine", toolchain="zig", sources=own(sample.root), **{key: [""]})


def with_grip(sample: Sample, **option: Any) -> None:
    """Give the foreign project an option that needs a library, whose source is not pinned."""
    sample.add_built(
        "grip", {"CMakeLists.txt": ""}, packages=[], facts={"minimum_macos": "11.0", "needs": ["fourfold"]}
    )
    grip = sample.recipes["grip"]
    grip["layouts"] = copy.deepcopy(sample.recipes["shelf"]["layouts"])
    grip["releases"][0]["source"] = copy.deepcopy(sample.recipes["shelf"]["releases"][0]["source"])
    sample.recipes["engine"]["build"]["options"]["grip"] = {
        "summary": "hold fast",
        "on": {"ENGINE_TRACTION": "{grip}"},
        "off": {"ENGINE_TRACTION": "OFF"},
        **(option or {"needs": ["grip@{version}"]}),
    }
    sample.write()


def grip(sample: Sample) -> str:
    folder = sample.root / "own/grip"
    folder.mkdir(parents=True)
    (folder / "grip.c").touch()
    return f"grip={folder}"


def test_option_without_its_library_is_left_out_with_a_remark(sample: Sample) -> None:
    with_grip(sample)
    plan = planned(sample)
    (remark,) = plan.remarks
    assert remark.startswith("engine is made without grip: grip 1.0 any: no source is pinned")
    assert definitions(plan)["ENGINE_TRACTION"] == "OFF"
    assert not [step for step in plan.steps if step.startswith(("grip", "fourfold"))]
    assert not planned(sample, without=("grip",)).remarks


def test_a_component_left_out_itself_leaves_no_remark(sample: Sample) -> None:
    with_grip(sample)
    plan = sample.plan(toolchain="zig", skip_unreachable=True)
    assert "engine" in [refusal.component for refusal in plan.refused]
    assert not plan.remarks


def test_a_requested_option_is_not_left_out(sample: Sample) -> None:
    with_grip(sample)
    with pytest.raises(LockError, match=r"grip 1\.0 any: no source is pinned") as caught:
        planned(sample, "grip")
    assert caught.value.hint == "run: macbuild lock grip; or use a folder of your own: --source grip=FOLDER"


def test_library_of_an_option_becomes_a_need(sample: Sample) -> None:
    with_grip(sample)
    plan = planned(sample, sources=(grip(sample),))
    assert not plan.remarks
    assert ("grip", "library") in [(need.component, need.role) for need in spec(plan).needed]
    assert definitions(plan)["ENGINE_TRACTION"] == "{grip}"
    left_out = planned(sample, without=("grip",), sources=(f"grip={sample.root / 'own/grip'}",))
    assert not [step for step in left_out.steps if step.startswith("grip")]


def test_packages_contain_only_what_options_include(sample: Sample) -> None:
    with_grip(sample, carries=["grip@{version}"], on={})
    sample.recipes["engine"]["packages"] = [
        {"kind": "tarball", "name": "engine", "include": [{"component": "grip", "from": "**/*", "to": "grip/"}]}
    ]
    sample.write()
    step = "engine-1.0-macos-arm64/assemble"
    plan = planned(sample)
    usual = ("engine-1.0-macos-arm64/fix", "twice-1.0-macos-arm64/build")
    assert plan.steps[step].needs == usual
    assert len(plan.remarks) == 1
    plan = planned(sample, sources=(grip(sample),))
    assert plan.steps[step].needs == (usual[0], "grip-1.0-macos-arm64/fix", usual[1])
    assert "grip" not in [need.component for need in spec(plan).needed]


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"needs": ["grip@newest"]}, "needs"),
        ({"needs": ["grip@{arch}"]}, "needs"),
        ({"requires": ["trase"]}, r"grip requires 'trase', which is not an option"),
        ({"on": {"ENGINE_TRACTION": "{grasp}"}}, r"\{grasp\} is not a component that the build sees"),
        ({"off": {"ENGINE_TRACTION": "{shelve}"}}, r"\{shelve\} is not a component that the build sees"),
    ],
)
def test_contradictory_option_is_refused_with_its_recipe(sample: Sample, option: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem) as caught:
        with_grip(sample, **{"needs": ["grip"], **option})
    assert str(caught.value.where).startswith(f"{sample.recipe_path('engine')}:")


def test_refused_options_have_a_reason_and_an_off_switch() -> None:
    for recipe in load_recipes(Path(__file__).parents[3] / "recipes").values():
        for name, option in (recipe.build.options if recipe.build else {}).items():
            assert bool(option.refused) <= bool(option.off), f"{recipe.name} {name}"
            assert not (option.refused and option.on), f"{recipe.name} {name}"
            assert option.on.keys() == option.off.keys() or option.refused or not option.off, f"{recipe.name} {name}"


def test_packed_include_brings_contents_and_audit_rules(sample: Sample) -> None:
    with_grip(sample, carries=["grip@{version}"], on={})
    grip_recipe = sample.recipes["grip"]
    grip_recipe["packages"] = [
        {"kind": "tarball", "name": "grip", "include": [{"component": "fourfold", "from": "include/*", "to": "four/"}]}
    ]
    excuse = {"rule": "arch-missing", "file": "grip/x", "reason": "of the other architecture alone"}
    grip_recipe["audit"] = {"exempt": [excuse], "exports": {"*/grip": {"allow": ["_grip"]}}}
    grip_recipe["merge"] = {"prefer": [{"file": "grip/y", "arch": "arm64", "reason": "the newer one"}]}
    rule = {"component": "grip", "from": "**/*", "to": "grip/", "packed": True}
    sample.recipes["engine"]["packages"] = [{"kind": "tarball", "name": "engine", "include": [rule]}]
    sample.recipes["engine"]["audit"] = {"exports": {"*/grip": {"allow": ["_own"]}}}
    sample.write()
    folders = [*own(sample.root), grip(sample)]
    plan = sample.plan("engine", "grip", toolchain="zig", sources=folders, arch="universal2")
    taken = "grip-1.0-macos-arm64/assemble"
    assert plan.steps["engine-1.0-macos-arm64/assemble"].needs[:2] == ("engine-1.0-macos-arm64/fix", taken)
    libraries = ("fourfold-1.0-macos-arm64/build", "twice-1.0-macos-arm64/build")
    assert plan.steps[taken].needs == ("grip-1.0-macos-arm64/fix", *libraries)
    audit = plan.steps["engine-1.0-macos-universal2/audit"].spec
    assert isinstance(audit, AuditSpec)
    assert [exemption.file for exemption in audit.rules.exempt] == ["grip/x"]
    assert audit.rules.exports["*/grip"].allow == ["_own"]
    merge = plan.steps["engine-1.0-macos-universal2/merge"].spec
    assert isinstance(merge, MergeSpec)
    assert [prefer.file for prefer in merge.prefer] == ["grip/y"]


def test_a_component_without_a_tarball_cannot_be_included_packed(sample: Sample) -> None:
    with_grip(sample, carries=["grip@{version}"], on={})
    rule = {"component": "grip", "from": "**/*", "to": "grip/", "packed": True}
    sample.recipes["engine"]["packages"] = [{"kind": "tarball", "name": "engine", "include": [rule]}]
    sample.write()
    with pytest.raises(RecipeError, match="grip has no tarball, and the package includes it packed"):
        planned(sample, sources=(grip(sample),))
