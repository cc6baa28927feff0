"""Test inputs that are those of another component, as a backend of one's own has those of macbuild's kit."""

from __future__ import annotations

from pathlib import Path

import pytest

from macbuild.config import bundled
from macbuild.errors import MacbuildError, PlanError, RecipeError
from macbuild.plan.model import BuildSpec, Plan, Step
from tests.support.sample import Sample

KIT = {"CMakeLists.txt": "project(kit)", "src/kit.cpp": "int kit;", "notes.txt": "nothing is built from this"}


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = Sample(tmp_path / "one")
    sample.add_built("kit", KIT, build={"inputs": ["CMakeLists.txt", "src/*"]})
    add(sample, "tiny", "kit")
    return sample


def add(sample: Sample, name: str, *kits: str) -> None:
    inputs = ["CMakeLists.txt", *(f"{{{kit}}}" for kit in kits)]
    definitions = {f"{kit.upper()}_FOLDER": f"{{{kit}}}/." for kit in kits}
    sample.add_built(
        name, {"CMakeLists.txt": "project(tiny)"}, build={"inputs": inputs, "definitions": definitions}, packages=[]
    )


def built(plan: Plan, name: str = "tiny") -> tuple[Step, BuildSpec]:
    step = plan.steps[f"{name}-1.0-macos-arm64/build"]
    assert isinstance(step.spec, BuildSpec)
    return step, step.spec


def test_a_build_borrows_the_inputs_of_another_component(sample: Sample) -> None:
    step, spec = built(sample.plan("tiny"))
    assert spec.build.inputs == ["CMakeLists.txt"]
    assert spec.build.definitions == {"KIT_FOLDER": f"{sample.recipe_path('kit').parent}/."}
    sample.recipe_path("kit").with_name("notes.txt").write_text("changed")
    assert built(sample.plan("tiny"))[0].key == step.key
    (sample.recipe_path("kit").parent / "src/kit.cpp").write_text("int kit = 1;")
    assert built(sample.plan("tiny"))[0].key != step.key


def test_what_is_borrowed_is_looked_up_in_the_recipes_of_macbuild(sample: Sample) -> None:
    add(sample, "mine", "backend_kit")
    _, spec = built(sample.plan("mine"), "mine")
    kit = bundled("recipes") / "backends/backend_kit"
    assert spec.build.definitions == {"BACKEND_KIT_FOLDER": f"{kit}/."}
    # The compiler writes none of these folders into files.
    assert {kit.parent, sample.recipe_path("mine").parents[1]} <= set(sample.project().recipes.groups("mine"))


def test_a_project_may_replace_what_is_borrowed(sample: Sample) -> None:
    add(sample, "mine", "backend_kit")
    key = built(sample.plan("mine"), "mine")[0].key
    sample.add_built("backend_kit", KIT, build={"inputs": ["CMakeLists.txt", "src/*"]})
    step, spec = built(sample.plan("mine"), "mine")
    assert spec.build.definitions == {"BACKEND_KIT_FOLDER": f"{sample.recipe_path('backend_kit').parent}/."}
    assert step.key != key


def test_the_key_does_not_depend_on_the_place_of_what_is_borrowed(sample: Sample, tmp_path: Path) -> None:
    one, first = built(sample.plan("tiny"))
    other, second = built(sample.copy(tmp_path / "two").plan("tiny"))
    assert one.key == other.key
    assert first.folder != second.folder


def test_what_is_borrowed_may_borrow(sample: Sample) -> None:
    add(sample, "outer", "tiny")
    step, _ = built(sample.plan("outer"), "outer")
    (sample.recipe_path("kit").parent / "src/kit.cpp").write_text("int kit = 1;")
    assert built(sample.plan("outer"), "outer")[0].key != step.key


@pytest.mark.parametrize(
    ("kit", "error", "problem"),
    [
        ("kti", PlanError, "there is no recipe 'kti'"),
        ("mine", RecipeError, "borrows its own inputs"),
        ("alpha", PlanError, "is repackaged, so it has no inputs"),
    ],
)
def test_impossible_references_are_refused(sample: Sample, kit: str, error: type[MacbuildError], problem: str) -> None:
    sample.add("alpha")
    with pytest.raises(error, match=problem):
        add(sample, "mine", kit)
        sample.plan("mine")


def test_components_that_borrow_from_each_other_end(sample: Sample) -> None:
    add(sample, "left", "right")
    add(sample, "right", "left")
    key = built(sample.plan("left"), "left")[0].key
    sample.recipe_path("right").with_name("CMakeLists.txt").write_text("project(other)")
    assert built(sample.plan("left"), "left")[0].key != key


def test_a_name_that_is_needed_and_borrowed_is_refused(sample: Sample) -> None:
    with pytest.raises(RecipeError, match="kit is needed and its inputs are borrowed"):
        sample.add_built(
            "mine",
            {"CMakeLists.txt": "project(mine)"},
            facts={"needs": ["kit"]},
            build={"inputs": ["CMakeLists.txt", "{kit}"]},
        )
