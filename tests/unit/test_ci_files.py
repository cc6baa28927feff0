"""The files in ci/ cannot be run here; that they are well formed can be checked."""

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

CI = Path(__file__).parents[2] / "ci"
ROOT = CI.parent
FILES = {"release.yml": "vendor.github-workflows", "action.yml": "vendor.github-actions"}


def load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(CI / name)
    return data


def steps(name: str) -> Iterator[dict[str, Any]]:
    """Yield all steps of a workflow or action."""
    data = load(name)
    for job in data.get("jobs", {"": data.get("runs")}).values():
        yield from job["steps"]


@pytest.mark.parametrize("name", FILES)
def test_file_is_valid_by_the_public_schema(name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", FILES[name], str(CI / name)]
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
def test_scripts_take_values_from_the_environment_only(name: str) -> None:
    """An expression inside a script would let whoever names a branch write a command."""
    assert not [step["run"] for step in steps(name) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("name", FILES)
def test_file_says_that_it_was_not_run(name: str) -> None:
    assert "# Not run yet: it needs GitHub" in (CI / name).read_text("utf-8")


def test_workflow_uses_only_inputs_and_files_that_exist() -> None:
    declared = load("action.yml")["inputs"]
    used = [step for step in steps("release.yml") if step.get("uses") == "./ci"]
    assert used
    for step in used:
        assert set(step["with"]) <= set(declared)
        assert {name for name, value in declared.items() if value.get("required")} <= set(step["with"])
    named = re.findall(r"\bci/[\w.]+", "\n".join(step.get("run", "") for step in steps("release.yml")))
    assert named
    assert all((ROOT / path).is_file() for path in named)


def test_policy_for_universal2_exempts_what_the_recipes_exempt() -> None:
    wanted = []
    for name in ("libtorch", "pytorch", "onnxruntime_backend"):
        path = ROOT / "recipes" / name / "recipe.toml"
        wanted += parse_toml(path.read_text("utf-8"), path, ConfigError)["audit"]["exempt"]
    policy = load_policy(str(CI / "universal2.toml"))
    found = [{"rule": entry.rule, "file": entry.file, "reason": entry.reason} for entry in policy.exemptions]
    assert found == wanted
