"""Fuzz each target for a few seconds; `python -m tests.fuzz TARGET` and ci/nightly.yml fuzz for longer."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import TARGETS

ROOT = Path(__file__).parents[2]
SECONDS = 2


def fuzz(work: Path, target: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Through a shell that forks: otherwise Linux counts the peak memory of the starting process as the program's own.
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "tests.fuzz", target]
    command += ["--seconds", str(SECONDS), "--work", str(work)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("target", TARGETS)
def test_new_inputs_found_by_coverage_do_no_harm(tmp_path: Path, target: str) -> None:
    ran = fuzz(tmp_path, target)
    assert ran.returncode == 0, ran.stderr[-4000:]
    executed = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
    assert executed is not None
    assert int(executed[1]) > 50
    assert any((tmp_path / "corpus").iterdir())
    assert not list(tmp_path.glob("failed-*"))


def test_a_defect_is_found_and_its_input_kept(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("macbuild", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    broken = tree / "macbuild" / "macho" / "image.py"
    text = broken.read_text("utf-8")
    check = "if size < HEADER_SIZE:"
    assert check in text
    broken.write_text(text.replace(check, "if size < 8:"), "utf-8")
    ran = fuzz(tmp_path / "work", "reader", tree)
    assert "unpack_from requires a buffer" in ran.stdout
    assert ran.returncode != 0
    assert list((tmp_path / "work").glob("failed-*"))
