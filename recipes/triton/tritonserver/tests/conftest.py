"""Provide one tritonserver with identity models for the whole session, and a connection to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "backends/backend_kit/python"))

import pytest
from backend_testing.service import Service, running
from backend_testing.wire import Client
from models import standard
from regions import keys_left, speak


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the model repository that most tests share."""
    return standard(tmp_path_factory.mktemp("repository") / "models")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Service]:
    """Provide the server that most tests share; at the end its exit code must be 0, and all shared memory gone."""
    with running(tmp_path_factory.mktemp("service"), repository) as service:
        speak(service.connect())
        yield service
    assert keys_left() == []


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A connection."""
    client = Client("http", service.http)
    yield client
    client.close()
