"""The PyTorch backend: what was cross-compiled, read by other people's tools; the same source in a real server."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import lief
import pytest

from macbuild.cli.toolpath import tool_folder
from macbuild.toolchain.evidence import load_evidence
from tests.conftest import Wheels
from tests.e2e.conftest import ARTIFACTS, Macbuild
from tests.integration.test_delocate import Delocate

WHEELS = {arch: files[-1] for arch, files in ARTIFACTS.items()}
TORCH = {"arm64": "torch-2.13.0-arm64", "x86_64": "torch-2.2.2-x86_64"}
REQUIRED = {"arm64": ["torch==2.13.0"], "x86_64": ["torch==2.2.2"]}


@pytest.fixture
def installed(dist: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The wheel of an architecture as pip installs it on such a Mac, without what it requires."""
    arch: str = request.param
    tag = WHEELS[arch].removesuffix(".whl").rpartition("-")[2]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--platform", tag]
    pip += ["--no-index", "--find-links", str(dist), "--target", str(tmp_path / "site")]
    subprocess.run([*pip, "tritonserver-backend-pytorch==0.1.0"], check=True)
    return tmp_path / "site"


def read(path: Path, arch: str) -> lief.MachO.Binary:
    """Return a thin Mach-O file as LIEF sees it."""
    parsed = lief.MachO.parse(path)
    assert parsed is not None
    image = parsed.take(lief.MachO.Header.CPU_TYPE.ARM64 if arch == "arm64" else lief.MachO.Header.CPU_TYPE.X86_64)
    assert image is not None
    return image


def backend(site: Path, arch: str) -> lief.MachO.Binary:
    """Return the backend in an installed wheel."""
    return read(site / "tritonserver/backends/pytorch/libtriton_pytorch.so", arch)


@pytest.mark.parametrize(("installed", "arch"), [("arm64", "arm64"), ("x86_64", "x86_64")], indirect=["installed"])
def test_every_symbol_of_the_backend_has_a_provider_that_has_it(installed: Path, arch: str, wheels: Wheels) -> None:
    image = backend(installed, arch)
    exported = {str(symbol.name) for symbol in image.exported_symbols}
    assert "_TRITONBACKEND_ModelInstanceExecute" in exported
    assert {name for name in exported if not name.startswith("_TRITONBACKEND_")} == set()
    offered: dict[str, set[str]] = {}
    for name in ("libtorch", "libtorch_cpu", "libc10"):
        library = read(wheels.file(TORCH[arch], f"torch/lib/{name}.dylib"), arch)
        offered[f"@rpath/{name}.dylib"] = {str(symbol.name) for symbol in library.exported_symbols}
    stub = Path(__file__).parents[2] / "recipes/backend_kit/tritonserver.symbols"
    offered["@rpath/libtritonserver.dylib"] = {
        f"_{line}" for line in stub.read_text().split("\n") if line and not line.startswith("#")
    }
    evidence = load_evidence()
    assert image.build_version is not None
    minimum = tuple(image.build_version.minos)
    wanted = {
        (str(binding.symbol.name), str(binding.library.name))
        for binding in image.bindings
        if binding.symbol is not None and binding.library is not None
    }
    assert wanted
    for symbol, provider in wanted:
        if provider in offered:
            assert symbol in offered[provider], (symbol, provider)
        else:
            lowest = evidence[provider].lowest(str(symbol), arch)
            assert lowest is not None, (symbol, provider)
            assert tuple(map(int, lowest.split("."))) <= minimum, (symbol, provider, lowest)


@pytest.mark.parametrize(("installed", "arch"), [("arm64", "arm64"), ("x86_64", "x86_64")], indirect=["installed"])
def test_the_backend_needs_libtorch_the_server_and_the_system_alone(installed: Path, arch: str) -> None:
    image = backend(installed, arch)
    needs = {library.name for library in image.libraries if library.command.name != "ID_DYLIB"}
    known = {
        "@rpath/libtorch.dylib",
        "@rpath/libtorch_cpu.dylib",
        "@rpath/libc10.dylib",
        "@rpath/libtritonserver.dylib",
    }
    assert needs - known == {"/usr/lib/libc++.1.dylib", "/usr/lib/libSystem.B.dylib"}
    assert {"@rpath/libtorch_cpu.dylib", "@rpath/libtritonserver.dylib"} <= needs
    (metadata,) = installed.glob("*.dist-info/METADATA")
    required = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.MULTILINE)
    assert required == REQUIRED[arch]
    assert list(installed.glob("*.dist-info/sboms/*.cdx.json"))


def test_the_command_passes_at_least_150_cases_in_the_real_server(macbuild: Macbuild) -> None:
    answer = macbuild("test", "pytorch", "--", "-q", "-p", "no:cacheprovider")
    passed = re.search(r"(\d+) passed", answer.stdout)
    assert passed is not None
    assert int(passed[1]) >= 150
    assert not re.search(r"failed|skipped|xfailed|error", answer.stdout.splitlines()[-1])


def test_the_load_is_clean_under_sanitizers(macbuild: Macbuild) -> None:
    sanitize = ["--sanitize", "address,undefined"]
    answer = macbuild("test", "pytorch", *sanitize, "--", "-q", "-p", "no:cacheprovider", "-k", "load")
    assert re.search(r"[1-9]\d* passed", answer.stdout)


def test_delocate_finds_nothing_to_do_and_agrees_on_the_tag(dist: Path, tmp_path: Path) -> None:
    delocate = Delocate(tool_folder(tmp_path / "tools"))
    for arch in ("arm64", "x86_64"):
        wheel = dist / WHEELS[arch]
        options = ("--ignore-missing-dependencies", "--require-archs", arch)
        delocate.run("delocate-wheel", *options, "-w", tmp_path / arch, wheel)
        (result,) = (tmp_path / arch).iterdir()
        assert result.name == wheel.name
        place = "tritonserver/backends/pytorch/libtriton_pytorch.so"
        with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(result) as after:
            assert before.read(place) == after.read(place)
