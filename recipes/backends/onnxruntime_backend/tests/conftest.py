"""Provide one tritonserver with the built backend for the whole session, and connections to it.

The backend loads the ONNX Runtime beside it, so the tests put the two into one folder: by default the library of the
installed Python package `onnxruntime`, which also gives the expected answers.

`macbuild test onnxruntime_backend` sets these variables:

MACBUILD_TEST_BACKENDS
    Folder that has `onnxruntime/libtriton_onnxruntime.so`, built for this machine.
MACBUILD_TEST_SERVER
    Folder of the server: the unpacked wheel nvidia-pytriton, or a folder with bin/tritonserver.
MACBUILD_TEST_PRELOAD
    Libraries that the server loads first, separated by `:`; a sanitizer's runtime. Optional.
MACBUILD_TEST_LOAD_SECONDS
    Duration of the load test (default 10). Optional.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

# ONNX Runtime 1.30 sends telemetry, here and in the server, which inherits this variable; some of that leaks.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
sys.path.insert(0, str(Path(__file__).parents[2] / "backend_kit" / "python"))

import pytest
from backend_testing.server import Service, running, variable
from backend_testing.wire import Client
from libraries import linux_library

LEAKS = Path(__file__).with_name("leaks.supp")


def installed_library() -> Path:
    """Return the shared library of the installed Python package."""
    found = find_spec("onnxruntime")
    assert found is not None
    assert found.origin is not None
    return next((Path(found.origin).parent / "capi").glob("libonnxruntime.so.*"))


def assemble(folder: Path, library: Path) -> Path:
    """Make a folder of backends in which this one finds a library, and return it."""
    (folder / "onnxruntime").mkdir(parents=True)
    backend = Path(variable("MACBUILD_TEST_BACKENDS", "onnxruntime_backend")) / "onnxruntime/libtriton_onnxruntime.so"
    shutil.copy(backend, folder / "onnxruntime")
    (folder / "onnxruntime" / library.name).symlink_to(library)
    return folder


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Provide a function that makes a folder of backends with the installed ONNX Runtime or a given version."""
    made: dict[str | None, Path] = {}

    def make(version: str | None = None) -> Path:
        own = Path(variable("MACBUILD_TEST_BACKENDS", "onnxruntime_backend"))
        if version is None and list((own / "onnxruntime").glob("libonnxruntime.*.dylib")):
            return own  # An unpacked artifact already has its library.
        if version not in made:
            library = installed_library() if version is None else linux_library(version)
            made[version] = assemble(tmp_path_factory.mktemp("backends"), library)
        return made[version]

    return make


@pytest.fixture(scope="session")
def start_service(
    tmp_path_factory: pytest.TempPathFactory, backends: Callable[..., Path]
) -> Iterator[Callable[..., Service]]:
    """Start further servers with other arguments, another ONNX Runtime, more environment; they end with the session."""
    with ExitStack() as stack:

        def begin(*arguments: str, version: str | None = None, environ: Mapping[str, str] | None = None) -> Service:
            folder = tmp_path_factory.mktemp("service")
            return stack.enter_context(
                running(folder, arguments, backends=backends(version), suppressions=LEAKS, environ=environ)
            )

        yield begin


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, backends: Callable[..., Path]) -> Iterator[Service]:
    """Provide the server that most tests share; its exit code is checked at the end."""
    with running(tmp_path_factory.mktemp("service"), backends=backends(), suppressions=LEAKS) as service:
        yield service


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, service: Service) -> Client:
    """Provide a connection of each protocol in turn."""
    protocol: str = request.param
    return service.client(protocol)
