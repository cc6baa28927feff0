"""Read the cross-compiled PyTorch backend with other tools; test its source in a real server."""

from __future__ import annotations

import re
from pathlib import Path

import lief
import pytest

from tests.conftest import Wheels
from tests.e2e.backends import LOADS, check_exports, check_imports, check_load, install, needs, read
from tests.e2e.conftest import Macbuild

TORCH = {"arm64": "torch-2.13.0-arm64", "x86_64": "torch-2.2.2-x86_64"}
REQUIRED = {"arm64": ["torch==2.13.0"], "x86_64": ["torch==2.2.2"]}


@pytest.fixture
def installed(dist: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return the wheel of an architecture as pip installs it on such a Mac, without its requirements."""
    arch: str = request.param
    return install(dist, "pytorch", arch, tmp_path / "site")


def backend(site: Path, arch: str) -> lief.MachO.Binary:
    """Return the backend in an installed wheel."""
    return read(site / "tritonserver/backends/pytorch/libtriton_pytorch.so", arch)


@pytest.mark.parametrize(("installed", "arch"), [("arm64", "arm64"), ("x86_64", "x86_64")], indirect=["installed"])
def test_every_symbol_of_the_backend_has_a_provider(installed: Path, arch: str, wheels: Wheels) -> None:
    image = backend(installed, arch)
    check_exports(image)
    names = ("libtorch", "libtorch_cpu", "libc10")
    libraries = {name: read(wheels.file(TORCH[arch], f"torch/lib/{name}.dylib"), arch) for name in names}
    check_imports(image, arch, {f"@rpath/{name}.dylib": library for name, library in libraries.items()})


@pytest.mark.parametrize(("installed", "arch"), [("arm64", "arm64"), ("x86_64", "x86_64")], indirect=["installed"])
def test_backend_links_only_libtorch_server_and_system(installed: Path, arch: str) -> None:
    needed = needs(backend(installed, arch))
    known = {
        "@rpath/libtorch.dylib",
        "@rpath/libtorch_cpu.dylib",
        "@rpath/libc10.dylib",
        "@rpath/libtritonserver.dylib",
    }
    assert needed - known == {"/usr/lib/libc++.1.dylib", "/usr/lib/libSystem.B.dylib"}
    assert {"@rpath/libtorch_cpu.dylib", "@rpath/libtritonserver.dylib"} <= needed
    (metadata,) = installed.glob("*.dist-info/METADATA")
    required = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.MULTILINE)
    assert required == REQUIRED[arch]
    assert list(installed.glob("*.dist-info/sboms/*.cdx.json"))


def test_at_least_150_cases_pass_in_the_real_server(macbuild: Macbuild) -> None:
    answer = macbuild.under_load(4)("test", "pytorch", "--", "-q", "-p", "no:cacheprovider")
    passed = re.search(r"(\d+) passed", answer.stdout)
    assert passed is not None
    assert int(passed[1]) >= 150
    assert not re.search(r"failed|skipped|xfailed|error", answer.stdout.splitlines()[-1])


@pytest.mark.parametrize(("sanitizers", "seconds"), LOADS)
def test_the_load_is_clean_under_sanitizers(macbuild: Macbuild, sanitizers: str, seconds: int) -> None:
    check_load(macbuild, "pytorch", sanitizers, seconds)
