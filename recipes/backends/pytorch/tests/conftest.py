"""Provide one tritonserver with the built backend for the whole session, and connections to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

# MKL's results depend on the alignment of the data unless it is told to be strict; the server inherits this.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
sys.path.insert(0, str(Path(__file__).parents[2] / "backend_kit" / "python"))

import pytest
from backend_testing.server import Service, running, variable
from backend_testing.wire import Client


def pytest_configure(config: pytest.Config) -> None:
    """Allow TorchScript, deprecated since torch 2.9, and deprecated names that torch itself still uses."""
    config.addinivalue_line("filterwarnings", "ignore:`torch.jit.*deprecated")
    config.addinivalue_line("filterwarnings", "ignore:TypedStorage is deprecated")


def begin(folder: Path, *arguments: str) -> AbstractContextManager[Service]:
    """Run a server with the backend."""
    backends = Path(variable("MACBUILD_TEST_BACKENDS", "pytorch"))
    return running(folder, arguments, backends=backends, suppressions=Path(__file__).with_name("leaks.supp"))


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Provide the server that most tests share; its exit code is checked at the end."""
    with begin(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture(scope="session")
def start_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """Start further servers with other arguments; they end with the session."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(begin(tmp_path_factory.mktemp("service"), *arguments))


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, service: Service) -> Client:
    """Provide a connection of each protocol in turn."""
    protocol: str = request.param
    return service.client(protocol)
