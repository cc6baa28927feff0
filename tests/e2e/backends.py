"""Install wheels of backends as on a Mac, read them with LIEF and compare them with their providers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import lief
import pytest

from macbuild.build.toolchain.evidence import load_evidence
from tests.e2e.conftest import ARTIFACTS, ROOT, Macbuild

CPU = {"arm64": lief.MachO.Header.CPU_TYPE.ARM64, "x86_64": lief.MachO.Header.CPU_TYPE.X86_64}


# Sanitizers with the seconds for which each load runs.
LOADS = [
    ("address,undefined", 4),
    pytest.param("address,undefined", 60, marks=pytest.mark.soak),
    pytest.param("thread", 10, marks=pytest.mark.soak),
]


def wheel(component: str, arch: str) -> str:
    """Return the name of a backend's wheel."""
    (name,) = [file for file in ARTIFACTS[arch] if file.startswith(f"tritonserver_backend_{component}-")]
    return name


def install(dist: Path, component: str, arch: str, target: Path) -> Path:
    """Install a wheel as pip does on such a Mac, without its requirements, and return the folder."""
    tag = wheel(component, arch).removesuffix(".whl").rpartition("-")[2]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--platform", tag]
    pip += ["--no-index", "--find-links", str(dist), "--target", str(target)]
    subprocess.run([*pip, f"tritonserver-backend-{component}==0.1.0"], check=True)
    return target


def read(path: Path, arch: str) -> lief.MachO.Binary:
    """Return the slice of a Mach-O file as read by LIEF; keep it while parts of it are in use."""
    parsed = lief.MachO.parse(path)
    assert parsed is not None
    image = parsed.take(CPU[arch])
    assert image is not None
    return image


def check_exports(image: lief.MachO.Binary) -> None:
    """Check that a backend exports only Triton's entry points."""
    exported = {str(symbol.name) for symbol in image.exported_symbols}
    assert "_TRITONBACKEND_ModelInstanceExecute" in exported
    assert {name for name in exported if not name.startswith("_TRITONBACKEND_")} == set()


def check_imports(image: lief.MachO.Binary, arch: str, libraries: Mapping[str, lief.MachO.Binary]) -> None:
    """Check that each symbol exists in the library it is bound to: a given one, the server, or one of the system."""
    offered = {name: {str(symbol.name) for symbol in library.exported_symbols} for name, library in libraries.items()}
    stub = ROOT / "recipes/backends/backend_kit/tritonserver.symbols"
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


def needs(image: lief.MachO.Binary) -> set[str]:
    """Return the install names of all libraries that an image is linked with."""
    return {str(library.name) for library in image.libraries if library.command.name != "ID_DYLIB"}


def check_load(macbuild: Macbuild, component: str, sanitizers: str, seconds: int) -> None:
    """Run the tests of a component that have many clients, with sanitizers."""
    line = ["test", component, "--sanitize", sanitizers, "--", "-q", "-p", "no:cacheprovider"]
    answer = macbuild.under_load(seconds)(*line, "-k", "load or keep_apart")
    assert re.search(r"[1-9]\d* passed", answer.stdout)
