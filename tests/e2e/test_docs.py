"""Run every command of the documentation, except those listed here with a reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from macbuild.files import mirror as mirror_folder
from macbuild.files import remove_tree
from tests.conftest import cache_folder, quick_compilers, zig_cache
from tests.e2e.conftest import ROOT, Macbuild
from tests.support.installed import clean_environment

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHECKED_OUT = ("cmake", "recipes", "patches")
INSTALLS = "installs macbuild itself; .ci/run runs the test command of the page"
NEEDS_MAC = "needs a Mac"
# Commands that are shown and not run, by page and beginning.
NOT_RUN = {
    ("README.md", "python3 -m venv .venv"): INSTALLS,
    ("README.md", "python3 -m pip install dist/"): NEEDS_MAC,
    ("CONTRIBUTING.md", "python3 -m venv .venv"): INSTALLS,
    ("docs/benchmarks.md", "python -m bench"): "measures for minutes, and only on an idle machine",
    ("docs/conformance.md", "CONFORMANCE_PAGE="): "tests/e2e/test_onnxruntime.py runs the cases",
    (
        "docs/design/steps-and-keys.md",
        "python -m macbuild.plan.code_closures",
    ): "writes to the package; tests/unit/plan/test_keys.py checks what it writes",
    ("docs/how-to/build-triton.md", "macbuild doctor --upstream"): "needs GitHub",
    (
        "docs/how-to/build-triton.md",
        "macbuild build tritonserver",
    ): "tests/integration/upstream does, from the synthetic sources",
    (
        "docs/how-to/build-triton.md",
        "macbuild test tritonserver",
    ): "tests/integration/upstream does, from the synthetic sources",
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
    ("docs/tutorial/first-model.md", "python3 -m pip install tritonserver_backend"): NEEDS_MAC,
    ("docs/tutorial/first-model.md", "curl -s localhost:8000"): NEEDS_MAC,
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a language, in the order of the page."""
    return [code for kind, code in FENCE.findall(page.read_text("utf-8")) if kind == language]


def checkout(page: Path) -> Path:
    """Return a folder with recipes, edits and a lock. Its path stays the same, so that little is compiled twice."""
    work = cache_folder() / "pages" / page.stem
    for place in work.glob("*"):
        if place.name not in CHECKED_OUT:
            remove_tree(place)
    for name in CHECKED_OUT:
        mirror_folder(ROOT / name, work / name)
    shutil.copyfile(ROOT / "macbuild.lock", work / "macbuild.lock")
    return work


RUN = [page for page in PAGES if blocks(page, "sh")]
OF_PROJECTS = [page for page in RUN if "macbuild init\n" in "".join(blocks(page, "sh"))]


@pytest.mark.parametrize("page", OF_PROJECTS, ids=name_of)
def test_commands_of_a_page_run_in_an_empty_folder(page: Path, programs: Path, tmp_path: Path) -> None:
    """Run a page that makes a project as one shell session, with the installed wheel and a store of its own."""
    work, store = tmp_path / "work", tmp_path / "store"
    work.mkdir()
    store.mkdir()
    # The compiler's own cache, which all tests share.
    (store / "zig").symlink_to(zig_cache())
    environment = {
        **clean_environment(),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "MACBUILD_CACHE_DIR": str(store),
    }
    shell = ["bash", "-euxo", "pipefail", "-c", "".join(blocks(page, "sh"))]
    done = subprocess.run(shell, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in RUN if page not in OF_PROJECTS], ids=name_of)
def test_commands_of_a_page_run_in_order(page: Path, macbuild: Macbuild, mirror: Path, tmp_path: Path) -> None:
    """Run a page as one shell session in a folder that has recipes, edits and a lock, like a checkout."""
    script = "".join(blocks(page, "sh"))
    # A page that tests a backend compiles it as the backend's own tests do, so it finds their results.
    variables = {} if "macbuild test " in script else dict(quick_compilers())
    if "recipes/" in script:
        work = checkout(page)
    else:
        work = tmp_path
        shutil.copyfile(ROOT / "macbuild.lock", work / "macbuild.lock")
        variables |= {"MACBUILD_RECIPES": str(ROOT / "recipes"), "MACBUILD_LOCK": str(work / "macbuild.lock")}
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("MACBUILD_")},
        **variables,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MACBUILD_CACHE_DIR": str(macbuild.cache),
        # pip downloads from the mirror, so that no registry is contacted twice.
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(mirror),
    }
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # A page continues after an error that it shows: `|| echo "exit code $?"  # 15`.
    promised = re.findall(r'\|\| echo "exit code \$\?"(?:  # (\d+))?$', script, re.MULTILINE)
    assert re.findall(r"^exit code (\d+)$", done.stdout, re.MULTILINE) == promised, done.stdout


def test_commands_not_run_are_listed_with_the_reason() -> None:
    shown = [(name_of(page), code) for page in (*PAGES, ROOT / "CONTRIBUTING.md") for code in blocks(page, "console")]
    for page, code in shown:
        assert any(page == where and code.startswith(start) for where, start in NOT_RUN), f"{page}: {code}"
    for where, start in NOT_RUN:
        assert any(page == where and code.startswith(start) for page, code in shown), (
            f"no longer there: {where} {start}"
        )


def test_pages_about_own_components_start_in_an_empty_folder() -> None:
    pages = {"docs/how-to/add-a-component.md", "docs/how-to/add-a-library.md"}
    assert {name_of(page) for page in OF_PROJECTS} == pages


def test_every_how_to_has_commands_that_run() -> None:
    assert {name_of(page) for page in RUN} >= {name_of(page) for page in (ROOT / "docs/how-to").glob("*.md")}
