"""Test plans of foreign projects: sources in the user's own folders, and their recipes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w

from macbuild.config import load_settings
from macbuild.errors import ConfigError, LockError, PlanError, RecipeError, UsageError
from macbuild.plan.model import BuildSpec, CheckoutSpec, Need, Plan
from macbuild.recipe.load import load_recipe
from tests.support.libraries import own, with_engine
from tests.support.sample import Sample

BUILD = "engine-1.0-macos-arm64/build"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return with_engine(tmp_path)


def planned(sample: Sample, **settings: object) -> Plan:
    return sample.plan("engine", **{"toolchain": "zig", "sources": own(sample.root), **settings})


def spec(plan: Plan) -> BuildSpec:
    spec = plan.steps[BUILD].spec
    assert isinstance(spec, BuildSpec)
    return spec


def keys(plan: Plan) -> dict[str, str]:
    return {name: step.key for name, step in plan.steps.items()}


def test_unpinned_source_is_an_error_with_both_solutions(sample: Sample) -> None:
    with pytest.raises(
        LockError, match=r"engine 1\.0 any: no source is pinned: git \(git https://.* at r1\)"
    ) as caught:
        planned(sample, sources=[])
    assert caught.value.hint == "run: macbuild lock engine; or use a folder of your own: --source engine=FOLDER"


def test_unpinned_component_is_left_out_when_lenient(sample: Sample) -> None:
    plan = sample.plan(toolchain="zig", skip_unreachable=True)
    assert [refusal.component for refusal in plan.refused] == ["engine"]
    assert {step.split("-")[0] for step in plan.goals} == {"twice", "fourfold"}


def test_user_folders_need_no_lock(sample: Sample) -> None:
    with pytest.raises(LockError, match=r"motor 1\.0 any: no source is pinned"):
        planned(sample, sources=[text for text in own(sample.root) if not text.startswith("motor")])
    lock = (sample.root / "macbuild.lock").read_text()
    assert "engine" not in lock
    plan = planned(sample)
    assert not [step for step in plan.steps if step.split("-")[0] in {"engine", "shelf", "motor"} and "/fetch" in step]
    assert {step for step in plan.steps if "checkout" in step} == {
        f"{name}-1.0-source/checkout" for name in ("engine", "shelf", "motor")
    }


def test_build_needs_own_source_trees_and_libraries(sample: Sample) -> None:
    assert spec(planned(sample)).needed == (
        Need("engine", "source"),
        Need("shelf", "source"),
        Need("motor", "source"),
        Need("twice", "library"),
    )


def test_the_same_folders_elsewhere_give_the_same_keys(sample: Sample, tmp_path: Path) -> None:
    other = tmp_path / "somewhere/else"
    other.parent.mkdir()
    (tmp_path / "own").rename(other)
    before = [f"{name}={other / name}" for name in ("engine", "shelf", "motor")]
    elsewhere = planned(sample, sources=before)
    other.rename(tmp_path / "own")
    assert keys(elsewhere) == keys(planned(sample))


@pytest.mark.parametrize(
    ("name", "file"), [("engine", "src/engine.cc"), ("shelf", "include/shelf.h"), ("motor", "LICENSE")]
)
def test_changed_source_changes_the_key_not_the_build_folder(sample: Sample, name: str, file: str) -> None:
    before = planned(sample)
    path = sample.root / "own" / name / file
    path.write_text(path.read_text() + "\n")
    after = planned(sample)
    changed = {step for step in before.steps if keys(before)[step] != keys(after)[step]}
    engine = {step for step in before.steps if step.startswith("engine-1.0-macos")}
    assert changed == engine | {f"{name}-1.0-source/checkout"}
    assert spec(before).folder == spec(after).folder
    assert after.steps[BUILD].reason == "first time"


def test_setting_or_library_empties_the_build_folder(sample: Sample) -> None:
    before = spec(planned(sample))
    assert spec(planned(sample, unwanted_options=["trace"])).settled != before.settled
    lists = sample.root / "recipes/twice/CMakeLists.txt"
    lists.write_text(lists.read_text() + "\n")
    assert spec(planned(sample)).settled != before.settled


def test_only_the_copying_step_knows_the_folders_place(sample: Sample) -> None:
    plan = planned(sample)
    place = str(sample.root / "own")
    knowing = {step.id for step in plan.steps.values() if place in msgspec.json.encode(step).decode()}
    assert knowing == {step.id for step in plan.steps.values() if isinstance(step.spec, CheckoutSpec)}
    assert not [step for step in plan.steps.values() if place in json.dumps(dict(step.ingredients))]


def test_edits_are_applied_to_user_folders_and_host_builds(sample: Sample) -> None:
    edits = sample.root / "patches/shelf"
    edits.mkdir(parents=True)
    (edits / "size.toml").write_text(
        tomli_w.dumps(
            {
                "schema": 1,
                "component": "shelf",
                "edits": [
                    {
                        "name": "size",
                        "file": "include/shelf.h",
                        "anchor": "SHELF 10",
                        "action": "replace",
                        "text": "SHELF 20",
                        "reason": "Macs are larger",
                        "platform": "macos",
                        "checked": [{"version": "1.0", "file": "include/shelf.h", "date": "2026-11-21", "how": "read"}],
                    }
                ],
            }
        )
    )
    plan = planned(sample)
    assert plan.steps["shelf-1.0-source/patch-macos"].needs == ("shelf-1.0-source/checkout",)
    assert "shelf-1.0-source/patch-macos" in plan.steps[BUILD].needs
    # The build for this machine is of the port, so that the port is tested.
    host = sample.project(sources=own(sample.root)).planner().host_stages("engine")
    assert "shelf-1.0-source/patch-macos" in host.steps["engine-1.0-host/build"].needs


def test_folder_for_unknown_or_repackaged_component_is_refused(sample: Sample) -> None:
    with pytest.raises(PlanError, match="there is no recipe 'engin'") as caught:
        planned(sample, sources=[f"engin={sample.root}"])
    assert caught.value.hint == "did you mean 'engine'?"
    sample.add("alpha")
    for name in ("alpha", "fourfold"):
        with pytest.raises(UsageError, match="has no source that could be replaced by a folder") as refused:
            planned(sample, sources=[f"{name}={sample.root}"])
        assert refused.value.where == f"--source {name}={sample.root}"


@pytest.mark.parametrize("text", ["engine", "engine=", "=folder", "", "engine=\0"])
def test_malformed_source_setting_is_refused(sample: Sample, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(sample, sources=[text])
    assert caught.value.where == "--source"


def test_missing_source_folder_is_named_in_the_error(sample: Sample) -> None:
    with pytest.raises(UsageError, match="missing is not a folder") as caught:
        planned(sample, sources=[*own(sample.root), f"shelf={sample.root / 'missing'}"])
    assert caught.value.where == "--source"


def test_folders_in_settings_are_relative_and_flags_win(sample: Sample) -> None:
    (sample.root / "macbuild.toml").write_text(
        'sources = ["engine=own/engine", "shelf=own/shelf", "motor=own/motor"]\n'
    )
    plan = sample.plan("engine", toolchain="zig")
    assert keys(plan) == keys(planned(sample))
    below = sample.root / "below"
    (below / "elsewhere").mkdir(parents=True)
    assert Sample(below).project().source_folders["engine"] == sample.root / "own/engine"
    given = Sample(below).project(sources=["engine=elsewhere"])
    assert given.source_folders == {"engine": below / "elsewhere"}


def test_folders_and_options_can_come_from_the_environment(tmp_path: Path) -> None:
    environ = {"MACBUILD_SOURCES": f"engine=/a b{os.pathsep}shelf=c", "MACBUILD_UNWANTED_OPTIONS": "trace"}
    settings = load_settings({}, environ, tmp_path)
    assert settings.sources == ["engine=/a b", "shelf=c"]
    assert settings.unwanted_options == ["trace"]
    with pytest.raises(ConfigError) as caught:
        load_settings({}, {"MACBUILD_SOURCES": "engine"}, tmp_path)
    assert caught.value.where == "MACBUILD_SOURCES"


def test_definitions_can_name_version_and_architecture(sample: Sample) -> None:
    sample.recipes["engine"]["build"]["definitions"]["ENGINE_CPU"] = "{arch}"
    sample.write()
    definitions = spec(planned(sample)).build.definitions
    assert (definitions["ENGINE_VERSION"], definitions["ENGINE_CPU"]) == ("1.0", "arm64")
    assert definitions["FETCHCONTENT_SOURCE_DIR_REPO-SHELF"] == "{shelf}"


def test_source_for_other_components_is_not_built_by_itself(sample: Sample) -> None:
    assert not sample.project().recipes["shelf"].wanted
    with pytest.raises(PlanError, match="no release of shelf has arm64") as caught:
        sample.plan("shelf", toolchain="zig")
    assert caught.value.hint == "shelf is a source that others are built from"


def test_own_definitions_and_options_override_shared_ones(sample: Sample) -> None:
    build = sample.recipes["engine"]["build"]
    shared: dict[str, dict[str, Any]] = {
        "definitions": {"COMMON_A": "1", "ENGINE_VERSION": "other", "COMMON_ROOT": "{twice}"},
        "options": {
            "trace": {"summary": "another", "on": {"COMMON_TRACE": "1"}},
            "colour": {"summary": "colour", "off": {"COMMON_COLOUR": "OFF"}},
        },
    }
    (sample.root / "recipes/shared.toml").write_text(tomli_w.dumps(shared))
    sample.recipes["engine"]["shared"] = "../shared.toml"
    sample.write()
    found = load_recipe(sample.recipe_path("engine")).build
    assert found is not None
    assert found.definitions == {**build["definitions"], "COMMON_A": "1", "COMMON_ROOT": "{twice}"}
    assert {name: option.summary for name, option in found.options.items()} == {
        "trace": "tell turns",
        "turbo": "go faster",
        "colour": "colour",
    }
    before = planned(sample).steps[BUILD].key
    shared["definitions"]["COMMON_A"] = "2"
    (sample.root / "recipes/shared.toml").write_text(tomli_w.dumps(shared))
    assert planned(sample).steps[BUILD].key != before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read"),
        ("definitions = 3", "definitions"),
        ("[definition]", "definition"),
        ('[definitions]\nX = "{shelv}"', r"\{shelv\} is not a component"),
        ('[options.x]\nsummary = "x"\nrequires = ["y"]', "x requires 'y'"),
    ],
)
def test_an_unusable_shared_file_is_refused(sample: Sample, text: str | None, problem: str) -> None:
    sample.recipes["engine"]["shared"] = "../shared.toml"
    if text is not None:
        (sample.root / "recipes/shared.toml").write_text(text)
    with pytest.raises(RecipeError, match=problem):
        sample.write()


@pytest.mark.parametrize(
    ("change", "problem", "hint"),
    [
        (
            lambda build: build["definitions"].update(X="{shel}/include"),
            r"\{shel\} is not a component that the build sees",
            "did you mean 'shelf'?",
        ),
        (lambda build: build.update(project="{engin}/src"), r"\{engin\} is not a source", "did you mean 'engine'?"),
        (lambda build: build.update(project="{twice}/src"), r"\{twice\} is not a source", "known: "),
        (lambda build: build["install"].append({"from": "{moto}/LICENSE", "to": "x/"}), r"\{moto\}", "'motor'"),
        (lambda build: build["install"].append({"from": "{twice}/LICENSE", "to": "x/"}), r"\{twice\}", "known: "),
        (lambda build: build.pop("project"), "build.inputs is empty, and build.project names no source", None),
    ],
)
def test_a_build_with_an_unknown_placeholder_is_refused(
    sample: Sample, change: Change, problem: str, hint: str | None
) -> None:
    change(sample.recipes["engine"]["build"])
    with pytest.raises(RecipeError, match=problem) as caught:
        sample.write()
    assert str(caught.value.where).startswith(f"{sample.recipe_path('engine')}:")
    assert (hint or "") in str(caught.value.hint)


def test_source_trees_need_a_build(sample: Sample) -> None:
    sample.add("alpha")
    sample.recipes["alpha"]["releases"][0]["arm64"]["trees"] = ["shelf"]
    with pytest.raises(RecipeError, match="has trees, and the recipe has no"):
        sample.write()


def test_unknown_release_of_a_tree_is_refused_with_a_suggestion(sample: Sample) -> None:
    sample.recipes["engine"]["releases"][0]["trees"] = ["shelf@1.1", "motor"]
    sample.write()
    with pytest.raises(RecipeError, match=r"shelf: there is no release 1\.1") as caught:
        planned(sample)
    assert "1.0" in str(caught.value.hint)


def test_the_tree_for_this_machine_has_the_packages_contents(sample: Sample) -> None:
    sample.recipes["engine"]["releases"][0]["carries"] = ["twice"]
    sample.write()
    plan = sample.project(sources=own(sample.root)).planner().host_tree("engine")
    assert plan.goals == ("engine-1.0-host/assemble",)
    assert plan.steps[plan.goals[0]].needs == ("engine-1.0-host/build", "twice-1.0-host/build")
