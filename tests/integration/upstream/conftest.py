"""Build the synthetic upstream once per session, without optimization for this machine."""

from __future__ import annotations

import pytest

from tests.conftest import quick_compilers
from tests.integration.upstream.running import World


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile programs for this machine without optimization."""
    for variable, compiler in quick_compilers().items():
        monkeypatch.setenv(variable, compiler)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return builds for a Mac and for this machine, and servers."""
    return World(tmp_path_factory.mktemp("upstream"))
