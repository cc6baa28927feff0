"""Check that the files in ci/, which cannot run here, are well formed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from macbuild.audit.policy import load_policy
from macbuild.data import parse_toml
from macbuild.errors import ConfigError
from macbuild.recipe.load import load_recipes
from tests.fuzz import TARGETS

CI = Path(__file__).parents[2] / "ci"
ROOT = CI.parent
# Files that build and check artifacts, and all files.
MAKING = ("release.yml", "upstream.yml")
WORKFLOWS = (*MAKING, "nightly.yml")
ACTIONS = {"./ci": "action.yml", "./ci/verify": "verify/action.yml"}
FILES = dict.fromkeys(WORKFLOWS, "vendor.github-workflows") | dict.fromkeys(ACTIONS.values(), "vendor.github-actions")


def load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(CI / name)
    return data


def steps(name: str) -> Iterator[dict[str, Any]]:
    """Yield all steps of a workflow or action."""
    data = load(name)
    for job in data.get("jobs", {"": data.get("runs")}).values():
        yield from job["steps"]


@pytest.mark.parametrize("schema", sorted(set(FILES.values())))
def test_files_are_valid_by_the_public_schema(schema: str) -> None:
    files = [str(CI / name) for name, wanted in FILES.items() if wanted == schema]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("name", FILES)
def test_shellcheck_finds_nothing_in_the_scripts(name: str, tmp_path: Path) -> None:
    scripts = [step["run"] for step in steps(name) if "run" in step]
    assert scripts
    paths = []
    for index, script in enumerate(scripts):
        paths.append(tmp_path / f"{index}.sh")
        paths[-1].write_text("#!/usr/bin/env bash\nset -eo pipefail\n" + script, "utf-8")
    shellcheck = Path(sys.executable).with_name("shellcheck")
    answer = subprocess.run([shellcheck, *paths], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("name", FILES)
def test_scripts_take_values_only_from_the_environment(name: str) -> None:
    """Check that no script has an expression, with which anybody who names a branch could run a command."""
    assert not [step["run"] for step in steps(name) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("name", FILES)
def test_file_states_that_it_was_not_run(name: str) -> None:
    assert "# Not run yet: it needs GitHub" in (CI / name).read_text("utf-8")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_uses_only_inputs_and_files_that_exist(name: str) -> None:
    used = [step for step in steps(name) if step.get("uses", "").startswith("./")]
    assert {step["uses"] for step in used} == (set(ACTIONS) if name in MAKING else {"./ci"})
    for step in used:
        declared = load(ACTIONS[step["uses"]])["inputs"]
        assert set(step.get("with", {})) <= set(declared)
        required = {name for name, value in declared.items() if value.get("required")}
        assert required <= set(step.get("with", {}))


@pytest.mark.parametrize("name", FILES)
def test_scripts_name_only_files_that_exist(name: str) -> None:
    scripts = "\n".join(step.get("run", "") for step in steps(name))
    named = re.findall(r"(?<![\w/$.-])(?:ci|recipes|tests)/[\w./]*\w", scripts)
    assert named or "tests/" not in scripts
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_action_names_the_store_by_the_plan_and_uploads_the_report_of_a_failure() -> None:
    rows = list(steps("action.yml"))
    (store,) = [step for step in rows if step.get("id") == "store"]
    (cache,) = [step for step in rows if step.get("uses", "").startswith("actions/cache@")]
    assert "macbuild plan" in store["run"]
    assert cache["with"]["key"].endswith("${{ steps.store.outputs.plan }}")
    (report,) = [step for step in rows if step.get("if", "").startswith("failure()")]
    assert report["with"]["path"] == "report.html"


def test_artifacts_are_built_for_an_architecture() -> None:
    for name in MAKING:
        made = [step["with"] for step in steps(name) if step.get("uses") == "./ci" and "make" not in step["with"]]
        assert made
        assert all("arch" in inputs for inputs in made)


def test_upstream_workflow_runs_tests_that_exist() -> None:
    rows = load("upstream.yml")["jobs"]["serve"]["strategy"]["matrix"]["include"]
    assert {row["arch"] for row in rows} == set(load("upstream.yml")["jobs"]["build"]["strategy"]["matrix"]["arch"])
    assert {row["tests"] for row in rows} == {
        path.parent.name for path in ROOT.glob("recipes/*/*/tests") if [*path.glob("test_*.py")]
    }


def test_nightly_fuzzes_every_target_and_tests_every_library() -> None:
    jobs = load("nightly.yml")["jobs"]
    assert set(jobs["fuzz"]["strategy"]["matrix"]["target"]) == set(TARGETS)
    (script,) = [step["run"] for step in jobs["soak"]["steps"] if "macbuild test" in step.get("run", "")]
    listed = re.search(r"for name in ([\w\s\\]+); do", script)
    assert listed is not None
    recipes = load_recipes(ROOT / "recipes").values()
    consumed = {recipe.name for recipe in recipes if recipe.build and recipe.build.consumer}
    assert set(listed[1].replace("\\", "").split()) == consumed - {"grpc"}  # its source cannot be pinned yet


def test_upstream_workflow_checks_the_edits_before_it_builds() -> None:
    jobs = load("upstream.yml")["jobs"]
    assert [step["run"] for step in jobs["edits"]["steps"] if "run" in step] == [
        "macbuild lock",
        "macbuild doctor --upstream",
    ]
    assert (jobs["build"]["needs"], jobs["serve"]["needs"]) == ("edits", "build")


def test_policy_for_universal2_has_the_exemptions_of_the_recipes() -> None:
    wanted = []
    for name in ("prebuilt/libtorch", "backends/pytorch", "backends/onnxruntime_backend"):
        path = ROOT / "recipes" / name / "recipe.toml"
        wanted += parse_toml(path.read_text("utf-8"), path, ConfigError)["audit"]["exempt"]
    policy = load_policy(str(CI / "universal2.toml"))
    found = [{"rule": entry.rule, "file": entry.file, "reason": entry.reason} for entry in policy.exemptions]
    assert found == wanted
