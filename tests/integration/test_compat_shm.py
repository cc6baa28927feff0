"""Compare names and records of shared memory between the C++ library and the client's Python file."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import program
from tests.unit.test_shm_names import names

COMPAT = Path(__file__).parents[2] / "recipes/libraries/macbuild_compat"
SOURCES = [
    "src/portable/sha256.cpp",
    "src/portable/shm_names.cpp",
    "src/portable/private_dir.cpp",
    "src/portable/shm_registry.cpp",
    "src/portable/parent_watch.cpp",
    f"src/{'darwin' if sys.platform == 'darwin' else 'linux'}/process.cpp",
    "tests/shm_names_tool.cpp",
]


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the tool for this machine."""
    path = tmp_path_factory.mktemp("compat") / "tool"
    sources = [str(COMPAT / source) for source in SOURCES]
    subprocess.run(
        [program("c++", "g++"), "-std=c++20", "-pthread", f"-I{COMPAT / 'include'}", *sources, "-o", path], check=True
    )
    return path


def run(tool: Path, *words: str, given: str = "") -> list[str]:
    return subprocess.run([tool, *words], input=given, capture_output=True, text=True, check=True).stdout.splitlines()


def keys() -> list[bytes]:
    """Return keys of all lengths and bytes, including some that differ little."""
    dice = random.Random(5)
    found = [bytes(dice.choices(range(1, 256), k=dice.randrange(1, 400))) for _ in range(2000)]
    found += [bytes(dice.choices(b"/ab", k=dice.randrange(1, 40))) for _ in range(2000)]
    found += [b"a" * length for length in range(1, 300)] + [b"/" * slashes + b"x/y" for slashes in range(5)]
    return [key for key in found if key.strip(b"/")]


def test_both_make_the_same_name_from_every_key(tool: Path) -> None:
    every = keys()
    made = [bytes.fromhex(line) for line in run(tool, "names", given="".join(f"{key.hex()}\n" for key in every))]
    assert made == [os.fsencode(names.shm_name(os.fsdecode(key))) for key in every]
    bodies = {key.lstrip(b"/") for key in every}
    assert len(set(made)) == len(bodies)
    assert max(map(len, made)) == names.LONGEST_NAME


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return f"/mbtest-{os.getpid()} a key that macOS would refuse/è"


def test_region_of_python_is_read_and_listed_by_the_library(tool: Path, key: str) -> None:
    block = names.SharedMemory(key, create=True, size=4096)
    try:
        block.buf[:5] = b"hello"
        assert run(tool, "read", os.fsencode(key).hex()) == ["hello"]
        name = os.fsencode(names.shm_name(key)).hex()
        assert run(tool, "list") == [f"{name} {os.fsencode(key[1:]).hex()} {os.getpid()}"]
        assert run(tool, "clean") == []
        again = subprocess.run([tool, "make", os.fsencode(key).hex(), "x"], capture_output=True, text=True, check=False)
        assert (again.returncode, again.stderr) == (1, "File exists\n")
    finally:
        block.close()
        block.unlink()
    assert run(tool, "list") == []


def test_region_of_the_library_is_read_and_cleaned_by_python(tool: Path, key: str) -> None:
    run(tool, "make", os.fsencode(key).hex(), "from the server")
    try:
        assert [region.key for region in names.list_regions()] == [key[1:]]
        block = names.SharedMemory(key)
        assert bytes(block.buf[:15]) == b"from the server"
        block.close()
    finally:
        assert names.clean() == [key[1:]]
    assert names.list_regions() == []
    assert run(tool, "list") == []


def test_leftovers_of_a_process_are_cleaned_by_the_library(tool: Path, key: str) -> None:
    run(tool, "make", os.fsencode(key).hex(), "x")
    assert run(tool, "clean") == [os.fsencode(key[1:]).hex()]
    assert names.list_regions() == []
