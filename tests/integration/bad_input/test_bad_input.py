"""Run every row of the table of bad inputs: one clear error, the right exit code, no hang, nothing half-written."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import shared_store
from tests.integration.bad_input.rows import ROWS, Row
from tests.support.sample import Sample

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/design/bad-input.md"
SECONDS = 60


def environment(sample: Sample, row: Row) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MACBUILD_") and name != "CI"}
    own = {"MACBUILD_CACHE_DIR": str(sample.root.with_name("cache")), "MACBUILD_ARCH": "arm64", "PYTHONPATH": str(ROOT)}
    return {**kept, **own, **row.environ}


def contents(sample: Sample) -> dict[str, bytes | None]:
    """Return all files of the project; None for what is not a file."""
    return {
        path.relative_to(sample.root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sample.root.rglob("*")
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_bad_input_is_one_clear_error(tmp_path: Path, row: Row) -> None:
    sample = Sample(tmp_path / row.folder)
    sample.root.mkdir()
    sample.add("alpha", archs=("arm64", "x86_64"))
    sample.add("alpha", version="2.0")
    with contextlib.ExitStack() as stack:
        made = row.spoil(sample)
        if isinstance(made, contextlib.AbstractContextManager):
            stack.enter_context(made)
        before = contents(sample)
        done = subprocess.run(
            [*row.start, sys.executable, "-m", "macbuild", *row.command.split()],
            cwd=sample.root,
            env=environment(sample, row),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    error, _, hint = done.stderr[done.stderr.index("error: ") :].partition("\nhint: ")
    assert done.returncode == row.code, done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    for said in row.says:
        assert said.format(root=sample.root).lower() in error.lower()
    assert row.hint in hint
    assert contents(sample) == before
    store = tmp_path / "cache"
    assert not list(store.glob("work/*"))
    assert all((result / "meta.json").exists() for result in store.glob("results/*/*"))


def test_the_page_has_the_number_of_rows() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE))
    counts = {group: str(number) for group, number in Counter(row.group for row in ROWS).items()}
    assert rows == {**counts, "all": str(len(ROWS))}


def test_no_row_is_there_twice() -> None:
    assert [name for name, number in Counter(row.id for row in ROWS).items() if number > 1] == []


SOURCE = '__attribute__((visibility("default"))) int value(void) { return 3; }\n'
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(beta C)
add_library(beta SHARED src/value.c)
install(TARGETS beta DESTINATION lib)
"""


def test_other_characters_in_the_path_of_a_project_work(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "a b'c\"d:e$f;g#h%iä")
    sample.root.mkdir()
    sample.add("alpha")
    inputs = {"inputs": ["CMakeLists.txt", "src/*"]}
    sample.add_built("beta", {"CMakeLists.txt": PROJECT, "src/value.c": SOURCE}, build=inputs)
    result = sample.make(cache_dir=str(shared_store()), toolchain="zig")
    assert {name: str(error) for name, error in result.failed.items()} == {}
    assert {"alpha-1.0-macos-arm64.tar.gz", "beta-1.0-macos-arm64.tar.gz"} <= sample.content().keys()


def test_what_is_repackaged_works_in_any_folder(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "a\nb\\c")
    sample.root.mkdir()
    sample.add("alpha")
    assert not sample.make().failed
    assert "alpha-1.0-macos-arm64.tar.gz" in sample.content()
