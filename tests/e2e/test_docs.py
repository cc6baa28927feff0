"""Every command of the documentation is run, or listed here with the reason why it is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, Macbuild

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALLS = "installs macbuild itself; .ci/run runs the test command as it stands there"
NEEDS_MAC = "needs a Mac"
# Commands that are shown and not run, by page and beginning.
NOT_RUN = {
    ("README.md", "python3 -m venv .venv"): INSTALLS,
    ("CONTRIBUTING.md", "python3 -m venv .venv"): INSTALLS,
    ("docs/benchmarks.md", "python -m bench"): "measures for minutes, on an idle machine only",
    ("docs/conformance.md", "CONFORMANCE_PAGE="): "tests/e2e/test_onnxruntime.py runs the cases",
    ("docs/how-to/build-triton.md", "macbuild doctor --upstream"): "needs GitHub",
    ("docs/how-to/build-triton.md", "macbuild build tritonserver"): "tests/upstream does, from the synthetic sources",
    ("docs/how-to/build-triton.md", "macbuild test tritonserver"): "tests/upstream does, from the synthetic sources",
    ("docs/how-to/build-triton.md", "tritonserver --model-repository"): NEEDS_MAC,
    ("docs/how-to/delocate-on-linux.md", "python3 -m pip install delocate"): "the test extra installs it",
    ("docs/how-to/test-a-backend.md", "python3 -m pip install"): "the test extra is installed",
    ("docs/how-to/test-a-backend.md", "MACBUILD_TEST_LOAD_SECONDS=60"): "takes a minute; run with 10 seconds elsewhere",
    ("docs/how-to/test-a-backend.md", "CONFORMANCE_PAGE="): "tests/e2e/test_onnxruntime.py runs the cases",
    ("docs/how-to/test-a-backend.md", "macbuild test pytorch --sanitize"): "tests/e2e/test_pytorch.py runs a part",
    ("docs/how-to/test-a-backend.md", "macbuild test backend_kit"): "tests/integration/test_backend_kit.py does it",
    ("docs/how-to/use-the-artifacts.md", "cmake -S . -B build"): NEEDS_MAC,
    ("docs/how-to/use-the-artifacts.md", "python3 -c 'import ctypes"): NEEDS_MAC,
    ("docs/how-to/use-the-artifacts.md", "python3 -m pip install dist/"): NEEDS_MAC,
    ("docs/how-to/use-the-artifacts.md", "xattr -dr"): NEEDS_MAC,
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a language, in the order of the page."""
    return [code for kind, code in FENCE.findall(page.read_text("utf-8")) if kind == language]


RUN = [page for page in PAGES if blocks(page, "sh")]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_commands_of_a_page_run_one_after_the_other(
    page: Path, macbuild: Macbuild, mirror: Path, tmp_path: Path
) -> None:
    """A page is one shell session in a folder that has recipes, edits and lock, as a checkout has."""
    for folder in ("cmake", "recipes", "patches"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copyfile(ROOT / "macbuild.lock", tmp_path / "macbuild.lock")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("MACBUILD_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MACBUILD_CACHE_DIR": str(macbuild.cache),
        # What a page has pip download is what the mirror has, so that no registry is asked twice.
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(mirror),
    }
    script = "".join(blocks(page, "sh"))
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # A page goes on after an error that it shows: `|| echo "exit code $?"  # 15`.
    promised = re.findall(r'\|\| echo "exit code \$\?"(?:  # (\d+))?$', script, re.MULTILINE)
    assert re.findall(r"^exit code (\d+)$", done.stdout, re.MULTILINE) == promised, done.stdout


def test_what_is_not_run_is_listed_with_the_reason() -> None:
    shown = [(name_of(page), code) for page in (*PAGES, ROOT / "CONTRIBUTING.md") for code in blocks(page, "console")]
    for page, code in shown:
        assert any(page == where and code.startswith(start) for where, start in NOT_RUN), f"{page}: {code}"
    for where, start in NOT_RUN:
        assert any(page == where and code.startswith(start) for page, code in shown), (
            f"no longer there: {where} {start}"
        )


def test_every_how_to_has_commands_that_are_run() -> None:
    assert {name_of(page) for page in RUN} >= {name_of(page) for page in (ROOT / "docs/how-to").glob("*.md")}
