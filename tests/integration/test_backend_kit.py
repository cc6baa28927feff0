"""Test the C++ kit of the backends under sanitizers, and read back a backend that is built with it."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from macbuild.build import cmake
from macbuild.macho.file import open_macho
from macbuild.macho.symbols import read_exports, read_imports
from macbuild.target import Arch
from tests.support.toolchains import DEPLOYMENT, kept_folder, project

KIT = Path(__file__).parents[2] / "recipes" / "backends" / "backend_kit"
ENTRY_POINTS = {
    f"TRITONBACKEND_{name}"
    for name in (
        "Initialize",
        "Finalize",
        "ModelInitialize",
        "ModelFinalize",
        "ModelInstanceInitialize",
        "ModelInstanceFinalize",
        "ModelInstanceExecute",
    )
}


def run(*command: str | Path, **environment: str) -> str:
    """Run a program of the virtual environment or the system; return its output."""
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    result = subprocess.run(
        [str(each) for each in command],
        check=False,
        env=os.environ | {"PATH": path, "LC_ALL": "C"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    return result.stdout


def configure(source: Path, build: Path, **definitions: str) -> None:
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, *(f"-D{name}={text}" for name, text in definitions.items()))


def test_the_stub_has_the_declared_functions() -> None:
    header = (KIT / "include/backend_kit/triton.h").read_text()
    declared = set(re.findall(r"\b(TRITON(?:SERVER|BACKEND)_[A-Z][a-z]\w+)\(", header))
    symbols = (KIT / "tritonserver.symbols").read_text().split()
    assert symbols == sorted(declared - ENTRY_POINTS)
    assert declared > ENTRY_POINTS


@pytest.fixture(scope="module")
def sanitized() -> Iterator[Path]:
    """Yield the build folder of the kit's tests with both sanitizers and every warning an error."""
    with kept_folder("kit-sanitized") as build:
        configure(
            KIT,
            build,
            CMAKE_BUILD_TYPE="Debug",
            CMAKE_COMPILE_WARNING_AS_ERROR="ON",
            MACBUILD_SANITIZE="address,undefined",
        )
        run("cmake", "--build", build)
        yield build


def test_all_tests_of_the_kit_pass_under_sanitizers(sanitized: Path) -> None:
    areas = sorted(path.stem.removeprefix("test_") for path in (KIT / "tests").glob("test_*.cpp"))
    listed = re.findall(r"Test +#\d+: (\w+)", run("ctest", "--test-dir", sanitized, "-N"))
    assert listed == areas
    report = sanitized / "report.xml"
    run("ctest", "--test-dir", sanitized, "--output-junit", report)
    suite = ET.parse(report).getroot()
    assert [case.get("status") for case in suite.iter("testcase")] == ["run"] * len(areas)
    for case in suite.iter("testcase"):
        source = (KIT / "tests" / f"test_{case.get('name')}.cpp").read_text()
        written = len(re.findall(r"^TEST\(", source, re.MULTILINE))
        assert case.findtext("system-out", "").strip() == f"{written} tests, 0 failed"


def test_the_tests_run_under_both_sanitizers(sanitized: Path) -> None:
    symbols = run("nm", sanitized / "tests/test_execute")
    assert "__asan_init" in symbols
    assert "__ubsan_handle" in symbols


@pytest.fixture(scope="module")
def consumer() -> Iterator[Path]:
    """Yield the build folder of a small backend for this machine."""
    with kept_folder("kit-consumer") as build:
        configure(KIT / "tests/consumer", build, CMAKE_BUILD_TYPE="Release")
        run("cmake", "--build", build)
        yield build


def test_a_backend_for_the_host_exports_only_its_entry_points(consumer: Path, tmp_path: Path) -> None:
    run("cmake", "--install", consumer, "--prefix", tmp_path)
    library = tmp_path / "backends/echo/libtriton_echo.so"
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    assert exported == ENTRY_POINTS
    # Each server has the library under another name, so none is named here.
    assert "libtritonserver" not in run("readelf", "-d", library)


def test_a_function_that_the_stub_lacks_is_a_link_error(consumer: Path, tmp_path: Path) -> None:
    stub = f"@{consumer / 'backend_kit/tritonserver.options'}"

    def link(function: str) -> None:
        code = tmp_path / "x.cpp"
        code.write_text(f'extern "C" int {function}(); int ask() {{ return {function}(); }}')
        run("c++", "-shared", "-fPIC", code, stub, "-o", tmp_path / "x.so")

    link("TRITONBACKEND_ApiVersion")
    with pytest.raises(AssertionError, match="undefined reference to `TRITONBACKEND_Unheard'"):
        link("TRITONBACKEND_Unheard")


@pytest.mark.parametrize("arch", DEPLOYMENT)
def test_backend_for_macos_compiles_cleanly_and_links_the_stub(arch: Arch, tmp_path: Path) -> None:
    with kept_folder(f"kit-{arch}") as kept:
        work = project(kept, arch, KIT / "tests/consumer", CMAKE_COMPILE_WARNING_AS_ERROR="ON")
        cmake.configure(work)
        cmake.build(work, jobs=2)
        cmake.install(work, tmp_path / "stage")
    with open_macho(tmp_path / "stage/backends/echo/libtriton_echo.so") as file:
        image = file.images[0]
        assert image.arch == arch
        assert image.kind == "DYLIB"
        assert image.id is not None
        assert image.id.name == "@rpath/libtriton_echo.so"
        assert {f"_{name}".encode() for name in ENTRY_POINTS} <= set(read_exports(image).names)
        server = [dylib.name for dylib in image.dylibs].index("@rpath/libtritonserver.dylib") + 1
        asked = {each.name.decode()[1:] for each in read_imports(image) if each.ordinal == server}
    assert asked == set((KIT / "tritonserver.symbols").read_text().split())
