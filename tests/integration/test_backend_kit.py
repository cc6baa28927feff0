"""The C++ kit of the backends: its own tests under sanitizers, and what a backend made with it looks like."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

import pytest

from macbuild.macho.file import open_macho
from macbuild.macho.symbols import read_exports, read_imports

KIT = Path(__file__).parents[2] / "recipes" / "backend_kit"
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
TARGETS = {"arm64": "aarch64-macos.14.0", "x86_64": "x86_64-macos.11.0"}


def run(*command: str | Path, **environment: str) -> str:
    """Run a program of the virtual environment or the system; return all it says."""
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


def test_the_stub_has_the_functions_that_are_declared() -> None:
    header = (KIT / "include/backend_kit/triton.h").read_text()
    declared = set(re.findall(r"\b(TRITON(?:SERVER|BACKEND)_[A-Z][a-z]\w+)\(", header))
    symbols = (KIT / "tritonserver.symbols").read_text().split()
    assert symbols == sorted(declared - ENTRY_POINTS)
    assert declared > ENTRY_POINTS


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the build folder of the kit's tests with both sanitizers and every warning an error."""
    build = tmp_path_factory.mktemp("kit")
    configure(
        KIT,
        build,
        CMAKE_BUILD_TYPE="Debug",
        CMAKE_COMPILE_WARNING_AS_ERROR="ON",
        MACBUILD_SANITIZE="address,undefined",
    )
    run("cmake", "--build", build)
    return build


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
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the build folder of a small backend for this machine."""
    build = tmp_path_factory.mktemp("consumer")
    configure(KIT / "tests/consumer", build, CMAKE_BUILD_TYPE="Release")
    run("cmake", "--build", build)
    return build


def test_a_backend_for_the_host_exports_only_its_entry_points(consumer: Path, tmp_path: Path) -> None:
    run("cmake", "--install", consumer, "--prefix", tmp_path)
    library = tmp_path / "backends/echo/libtriton_echo.so"
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    assert exported == ENTRY_POINTS
    # Each server has the library under another name, so none is asked for.
    assert "libtritonserver" not in run("readelf", "-d", library)


def test_a_function_that_the_stub_lacks_is_an_error_of_the_link(consumer: Path, tmp_path: Path) -> None:
    stub = f"@{consumer / 'backend_kit/tritonserver.options'}"

    def link(function: str) -> None:
        code = tmp_path / "x.cpp"
        code.write_text(f'extern "C" int {function}(); int ask() {{ return {function}(); }}')
        run("c++", "-shared", "-fPIC", code, stub, "-o", tmp_path / "x.so")

    link("TRITONBACKEND_ApiVersion")
    with pytest.raises(AssertionError, match="undefined reference to `TRITONBACKEND_Unheard'"):
        link("TRITONBACKEND_Unheard")


@pytest.mark.parametrize("arch", TARGETS)
def test_a_backend_for_macos_is_compiled_without_warning_and_linked_to_the_stub(arch: str, tmp_path: Path) -> None:
    spec = find_spec("ziglang")
    assert spec is not None
    assert spec.origin is not None
    zig = Path(spec.origin).with_name("zig")
    for tool, arguments in {"c++": f"c++ -target {TARGETS[arch]} -g0", "ar": "ar", "ranlib": "ranlib"}.items():
        (tmp_path / tool).write_text(f'#!/bin/sh\nexec "{zig}" {arguments} "$@"\n')
        (tmp_path / tool).chmod(0o755)
    configure(
        KIT / "tests/consumer",
        tmp_path / "build",
        CMAKE_AR=str(tmp_path / "ar"),
        CMAKE_BUILD_TYPE="Release",
        CMAKE_COMPILE_WARNING_AS_ERROR="ON",
        CMAKE_CXX_COMPILER=str(tmp_path / "c++"),
        CMAKE_INSTALL_NAME_TOOL="true",
        CMAKE_OSX_SYSROOT="",
        CMAKE_RANLIB=str(tmp_path / "ranlib"),
        CMAKE_SYSTEM_NAME="Darwin",
        CMAKE_SYSTEM_PROCESSOR=arch,
    )
    run("cmake", "--build", tmp_path / "build")
    run("cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "stage")
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
