"""Read back the libraries that the server is built with, and use them in programs on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lief
import pytest

from macbuild.recipe.load import load_recipes
from tests.conftest import cache_folder, shared_store
from tests.e2e.conftest import ROOT, Macbuild

# gRPC's source is not pinned yet: its recipe is only read.
UNPINNED = {"grpc"}
RECIPES = {name: recipe for name, recipe in load_recipes(ROOT / "recipes").items() if recipe.build}
LIBRARIES = sorted({name for name, recipe in RECIPES.items() if recipe.build and recipe.build.consumer} - UNPINNED)
# The ones whose code or configuration depends most on the architecture; tests/integration/upstream builds the others.
INTEL = ("zlib", "libevent", "boringssl")
# Its headers make symbols visible, whatever the compiler flags. It is linked only into tests.
VISIBLE = {"googletest"}
CPU = {"arm64": lief.MachO.Header.CPU_TYPE.ARM64, "x86_64": lief.MachO.Header.CPU_TYPE.X86_64}


@cache
def stages(macbuild_cache: Path, arch: str) -> dict[str, Path]:
    """Return the stage of each library for macOS."""
    names = LIBRARIES if arch == "arm64" else INTEL
    answer = Macbuild(macbuild_cache).quick()("build", *names, "--arch", arch, "--json")
    made = json.loads(answer.stdout)["stages"]
    found = {Path(path): step for step, path in made.items()}
    return {name: next(path for path, step in found.items() if step.startswith(f"{name}-")) for name in names}


@pytest.fixture(scope="session", params=["arm64", "x86_64"])
def built(request: pytest.FixtureRequest, dist: Path) -> tuple[str, dict[str, Path]]:
    """Return an architecture and the stages of libraries for it; `macbuild all` built those for arm64."""
    del dist
    return request.param, stages(shared_store(), request.param)


def text_files(stage: Path) -> Iterator[Path]:
    for path in stage.rglob("*"):
        if path.suffix in {".cmake", ".pc"} or (path.suffix in {".h", ".hpp"} and "config" in path.name):
            yield path


def members(archive: Path, folder: Path) -> Iterator[lief.MachO.Binary]:
    """Yield the objects of a static library, extracted by LLVM."""
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "ziglang", "ar", "x", str(archive)], cwd=folder, check=True)
    for path in sorted(folder.iterdir()):
        binary = lief.parse(path)
        assert isinstance(binary, lief.MachO.Binary), path
        yield binary


def test_every_library_exists_with_its_licence(built: tuple[str, dict[str, Path]]) -> None:
    for name, stage in built[1].items():
        assert list((stage / "share/licenses").rglob("*")), name
        assert list((stage / "include").iterdir()), name


def test_no_library_contains_its_build_path(built: tuple[str, dict[str, Path]]) -> None:
    places = (str(cache_folder()).encode(), str(ROOT).encode())
    for name, stage in built[1].items():
        for path in (*text_files(stage), *stage.rglob("*.a")):
            content = path.read_bytes()
            assert not [place for place in places if place in content], f"{name}: {path.name}"


def test_archives_have_the_right_cpu_and_hide_their_symbols(built: tuple[str, dict[str, Path]], tmp_path: Path) -> None:
    arch, libraries = built
    hidden = {name: stage for name, stage in libraries.items() if name not in VISIBLE}
    archives = [(name, path) for name, stage in hidden.items() for path in stage.rglob("*.a")]
    assert len(archives) >= len(INTEL)
    for number, (name, archive) in enumerate(archives):
        shown = set()
        for binary in members(archive, tmp_path / str(number)):
            assert binary.header.cpu_type == CPU[arch], archive
            for symbol in binary.symbols:
                # N_EXT without N_PEXT, and defined (mach-o/nlist.h)
                if symbol.raw_type & 0x1F in {0x0F, 0x03}:
                    shown.add(symbol.name)
        assert not shown, f"{name}: {archive.name} shows {sorted(map(str, shown))[:5]}"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_program_uses_the_library_on_this_machine(macbuild: Macbuild, dist: Path, name: str) -> None:
    del dist
    answer = macbuild.quick()("test", name)
    assert "100% tests passed" in answer.stdout


def test_unavailable_component_is_reported(macbuild: Macbuild, dist: Path) -> None:
    answer = macbuild.quick()("all", "--skip-unreachable", "--arch", "arm64", "--dist", str(dist))
    for name in UNPINNED:
        assert f"left out: {name}: " in answer.stderr
        assert "not pinned; run: macbuild " in answer.stderr
